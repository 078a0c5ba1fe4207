"""What a step of a replica takes by what is in it, fitted live to the sums that engines report.

A step takes ``fixed + prefill tokens x p + decode sequences x d + KV tokens read x k + prefill pairs x q`` seconds, as
the simulator's profiles have it. The steps of one replica between two samples are one observation, which fades with
time. The fit is by least squares with no coefficient below 0. It begins at the fit before it, and where the traffic
does not separate two kinds of work it stays near to that. An observation far from what the fit expects weighs less.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from operator import mul
from typing import Self

from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning

_SIZE = 6
_TIME = _SIZE - 1
_UPPER_TRIANGLE = tuple(combinations_with_replacement(range(_SIZE), 2))
_AT = {pair: at for at, (i, j) in enumerate(_UPPER_TRIANGLE) for pair in ((i, j), (j, i))}
_STEPS, _PREFILL, _DECODE, _KV, _PAIRS = range(_TIME)

_SWEEPS = 30
"""Sweeps of one fit; each look goes on from the fit before."""

Cost = tuple[float, float, float, float, float]
"""Seconds of a step, of a prefill token, a decode sequence, a KV token, and a prefill pair."""


@dataclass(frozen=True, slots=True)
class StepModel:
    """Fading means over replicas and time of the products that ``step_sums`` of ``/stats`` has, and their fit."""

    weight: float = 0.0
    products: tuple[float, ...] = (0.0,) * len(_UPPER_TRIANGLE)
    cost: Cost | None = None
    tuning: Tuning = DEFAULT_TUNING

    def observe(self, signals: Signals, elapsed: float) -> Self:
        """The model after further signals, ``elapsed`` seconds after those before."""
        fade, trusted = 0.5 ** (max(elapsed, 0.0) / self.tuning.half_life_seconds), self.trusted_cost
        weight, rows = self.weight * fade, [[value * fade for value in self.products]]
        for load in signals.replicas:
            steps = load.step_sums[0] if load.step_sums else 0.0
            if steps < 1:
                continue
            # A mean and not a sum: an engine with many steps, or one that claims them, is one engine.
            means = [value / steps for value in load.step_sums]
            share = 1.0 if trusted is None else self._weigh_means(means, trusted)
            weight += share
            rows.append(means if share == 1 else [share * value for value in means])
        products = [sum(column) for column in zip(*rows, strict=True)]
        cost = _fit_costs(products, self.cost) if weight > 0 else self.cost
        return replace(self, weight=weight, products=tuple(products), cost=cost)

    @property
    def trusted_cost(self) -> Cost | None:
        """The fit, once it rests on enough observations."""
        return self.cost if self.weight >= self.tuning.min_observations else None

    @property
    def fit(self) -> float:
        """Share of the variance of steps' times that the fit explains (R squared), 0..1; 0 while unknown."""
        if self.cost is None or self.weight <= 0:
            return 0.0
        unexplained, _ = self._sum_squares(self.cost)
        total = self._get_product(_TIME, _TIME) - self._get_product(_STEPS, _TIME) ** 2 / self.weight
        return min(max(1 - unexplained / total, 0.0), 1.0) if total > 0 else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of a step's time as a share of what the fit expects, 0..1; 0 while unknown.

        Other programs on the machine are in it, and long steps weigh more. More than 1 counts as 1.
        """
        if (cost := self.trusted_cost) is None:
            return 0.0
        unexplained, expected = self._sum_squares(cost)
        return math.sqrt(min(unexplained / expected, 1.0)) if expected > 0 else 0.0

    @property
    def context(self) -> float:
        """KV tokens that a decoding sequence reads, on average."""
        decodes = self._get_product(_DECODE, _DECODE)
        return self._get_product(_DECODE, _KV) / decodes if decodes > 0 else 0.0

    @property
    def decode_line(self) -> tuple[float, float] | None:
        """(base, slope): seconds between two tokens of a sequence are ``base + slope x sequences``; None while unknown.

        Prompts that come while sequences decode share their steps, so each generated token costs its share of a prompt.
        """
        cost = self.trusted_cost
        if cost is None or self._get_product(_STEPS, _DECODE) <= 0:
            return None
        fixed, _, d, k, _ = cost
        return fixed, d + k * self.context + self.prompt_slope

    @property
    def prompt_slope(self) -> float:
        """Seconds of prompts for each generated token; 0 while unknown."""
        cost, decoded = self.trusted_cost, self._get_product(_STEPS, _DECODE)
        return 0.0 if cost is None or decoded <= 0 else self._prompt_seconds(cost) / decoded

    @property
    def prompt_token_seconds(self) -> float | None:
        """Seconds that each token of a prompt adds to a step; None while unknown."""
        cost, prefilled = self.trusted_cost, self._get_product(_STEPS, _PREFILL)
        return None if cost is None or prefilled <= 0 else self._prompt_seconds(cost) / prefilled

    def prompt_step(self, tokens: float) -> float | None:
        """Seconds of a step that has ``tokens`` of prompts and nothing else; None while unknown."""
        cost, each = self.trusted_cost, self.prompt_token_seconds
        return None if cost is None or each is None else cost[0] + tokens * each

    def decode_room(self, seconds: float) -> float | None:
        """Sequences whose step, without any prompt, takes that long; None while unknown."""
        if (cost := self.trusted_cost) is None:
            return None
        fixed, _, d, k, _ = cost
        each = d + k * self.context
        return max(seconds - fixed, 0.0) / each if each > 0 else math.inf

    def mixed_step(self, tokens: int) -> float | None:
        """Seconds of a step of ``tokens`` that has a chunk of a prompt beside what decodes then; None while unknown."""
        mixed = self._mixed
        if mixed is None:
            return None
        base, each, decodes = mixed
        return base + max(tokens - decodes, 0.0) * each

    def largest_step(self, seconds: float) -> float | None:
        """Tokens of the largest such step that takes no longer than ``seconds``; None while unknown."""
        mixed = self._mixed
        if mixed is None:
            return None
        base, each, decodes = mixed
        return decodes + max(seconds - base, 0.0) / each if each > 0 else math.inf

    @property
    def _mixed(self) -> tuple[float, float, float] | None:
        """Steps with a prompt: seconds without it, seconds a prompt token, and sequences that decode beside it."""
        cost, at = self.trusted_cost, self._get_product
        prompts = at(_STEPS, _PREFILL)
        if cost is None or prompts <= 0:
            return None
        fixed, p, d, k, q = cost
        decodes = at(_PREFILL, _DECODE) / prompts
        context = min(at(_PREFILL, _KV) / prompts, decodes * self.context)
        pairs = at(_STEPS, _PAIRS) / prompts
        return fixed + d * decodes + k * context, p + q * pairs, decodes

    def _prompt_seconds(self, cost: Cost) -> float:
        """Seconds of a step that its prompts take, on average."""
        _, p, _, k, q = cost
        read = max(self._get_product(_STEPS, _KV) - self.context * self._get_product(_STEPS, _DECODE), 0.0)
        return p * self._get_product(_STEPS, _PREFILL) + q * self._get_product(_STEPS, _PAIRS) + k * read

    def _sum_squares(self, cost: Cost) -> tuple[float, float]:
        """Squares of steps' seconds less what ``cost`` expects, at least 0, and of what it expects."""
        at = self._get_product
        expected = sum(a * b * at(i, j) for i, a in enumerate(cost) for j, b in enumerate(cost))
        left = at(_TIME, _TIME) - 2 * sum(c * at(i, _TIME) for i, c in enumerate(cost)) + expected
        return max(left, 0.0), expected

    def _weigh_means(self, means: Sequence[float], cost: Cost) -> float:
        """Weight of an observation, 1 where it is near to what the fit expects."""
        expected = sum(map(mul, cost, means))
        off, allowed = abs(means[_AT[_STEPS, _TIME]] - expected), self.tuning.outlier_share * expected
        return 1.0 if off <= allowed else allowed / off

    def _get_product(self, i: int, j: int) -> float:
        return self.products[_AT[i, j]]


def _fit_costs(products: Sequence[float], prior: Cost | None) -> Cost:
    """Least squares by coordinate descent from ``prior``, no coefficient below 0.

    Each coefficient is at most what its own row alone gives, also where the sums of an engine contradict each other.
    """
    rows = [[products[_AT[i, j]] for j in range(_SIZE)] for i in range(_TIME)]
    cost = list(prior or _first_guess(products))
    for _ in range(_SWEEPS):
        for i, row in enumerate(rows):
            if row[i] > 0:
                left = row[_TIME] - sum(map(mul, row, cost))
                cost[i] = max(cost[i] + left / row[i], 0.0)
    return (cost[0], cost[1], cost[2], cost[3], cost[4])


def _first_guess(products: Sequence[float]) -> Cost:
    """Coefficients before any fit: half of a step's time for the step itself, and half for its tokens.

    This lies between a machine bound by memory and one bound by arithmetic.
    """
    mean = products[_AT[_STEPS, _TIME]] / products[0]
    tokens = (products[_AT[_STEPS, _PREFILL]] + products[_AT[_STEPS, _DECODE]]) / products[0]
    each = mean / 2 / tokens if tokens > 0 else 0.0
    return mean / 2, each, each, 0.0, 0.0
