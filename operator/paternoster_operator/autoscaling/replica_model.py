"""The model of one replica, fitted to what engines report.

It has the cost of a step, the share of the KV pool that a sequence holds, and the length of answers.

Within a step every sequence waits for all others, and the prompts that come while it decodes share its steps, so the
time between two tokens is a line in the number of sequences: ``itl(n) = base + slope n``. With ``r`` requests a
second, ``w`` seconds of prompt work each and ``O`` output tokens, a step takes ``t = a + b n + r w t``, and by Little's
law ``n = r O t``: hence ``t = a + (b + w / O) n``. All of it comes from the fitted cost of a step.
``w / O`` is the time of prompts for each generated token once as many requests end as start. In a burst that is young
prompts are read and most tokens are yet to come, so what is observed counts by the share of requests that have ended.

A request for one token at most ends with the step that has read its prompt, as those for vectors do. Its place is one
in such a step, which holds as many of them as there are tokens in it: ``t = a + w n``.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.step_model import StepModel
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """Fading sums over replicas and time."""

    weight: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0
    started: float = 0.0
    answers: float = 0.0
    tokens: float = 0.0
    computed: float = 0.0
    """Tokens that went through the model."""
    step_tokens: int = 0
    """Most tokens of a step; 0 while unknown."""
    steps: StepModel = field(default_factory=StepModel)
    tuning: Tuning = DEFAULT_TUNING

    @classmethod
    def empty(cls, tuning: Tuning) -> Self:
        """Before the first signals."""
        return cls(tuning=tuning, steps=StepModel(tuning=tuning))

    def observe(self, signals: Signals, elapsed: float) -> Self:
        """The model after further signals, ``elapsed`` seconds after those before."""
        fade = 0.5 ** (max(elapsed, 0.0) / self.tuning.half_life_seconds)
        busy = [load for load in signals.replicas if load.running > 0]
        running, kv_usage = sum(load.running for load in busy), sum(load.kv_usage for load in busy)
        remembered = self.kv_usage
        if self.running and kv_usage > self.tuning.crowded_kv_usage * len(busy):
            remembered = max(remembered, kv_usage / running * self.running)
        return replace(
            self,
            weight=self.weight * fade + len(busy),
            running=self.running * fade + running,
            kv_usage=remembered * fade + kv_usage,
            started=self.started * fade + signals.started,
            answers=self.answers * fade + signals.finished,
            tokens=self.tokens * fade + signals.generated,
            computed=self.computed * fade + sum(load.computed_tokens for load in signals.replicas),
            step_tokens=signals.token_capacity or self.step_tokens,
            steps=self.steps.observe(signals, elapsed),
        )

    @property
    def tokens_per_answer(self) -> float | None:
        """Output tokens of a request, on average; None while unknown."""
        return self.tokens / self.answers if self.answers >= self.tuning.min_answers else None

    @property
    def kv_per_sequence(self) -> float | None:
        """Share of a replica's KV blocks that one running sequence holds, on average; None while unknown."""
        if self.weight < self.tuning.min_observations or self.kv_usage <= 0:
            return None
        return self.kv_usage / self.running

    @property
    def prompt_tokens(self) -> float | None:
        """Tokens computed for a request that ends with its prompt, on average; None where they go on, or unknown."""
        answer = self.tokens_per_answer
        return None if answer is None or answer > 1 else self.computed / self.answers

    @property
    def steps_per_answer(self) -> float | None:
        """Steps that a request gets something of, on average: one for each token, and one where it generates none."""
        answer = self.tokens_per_answer
        return None if answer is None else max(answer, 1.0)

    def step_seconds(self, running: float) -> float | None:
        """Seconds of a step with ``running`` sequences, which are those between two tokens; None while unknown."""
        if (prompt := self.prompt_tokens) is not None:
            return self.steps.prompt_step(running * prompt)
        line = self._decode_line
        return None if line is None else line[0] + line[1] * running

    def most_within(self, itl_seconds: float) -> float | None:
        """Most sequences at once that keep the time between two tokens within a limit; None while unknown."""
        line = self._decode_line
        if line is None:
            return None
        base, slope = line
        return max(itl_seconds - base, 0.0) / slope if slope > 0 else math.inf

    def has_lighter_requests(self, before: Self) -> bool:
        """Whether requests take less of a replica than those of the model ``before`` did, beyond doubt.

        Of requests that start and those that end, the fewer count here and the more there: in a burst, and after it,
        they are not the same ones.
        """
        now = self._seconds_of_steps(min(self.answers, self.started))
        then = before._seconds_of_steps(max(before.answers, before.started))
        return now is not None and then is not None and now * self.tuning.lighter_factor < then

    def _seconds_of_steps(self, requests: float) -> float | None:
        """Seconds of steps, less their fixed part, for each of ``requests``; None while unknown."""
        line = self.steps.decode_line
        return None if line is None or requests < self.tuning.min_answers else line[1] * self.tokens / requests

    @property
    def _decode_line(self) -> tuple[float, float] | None:
        """(base, slope) of the time between two tokens, for as many requests that end as start; None while unknown."""
        line = self.steps.decode_line
        if line is None:
            return None
        ended = min((self.answers + 1) / (self.started + 1), 1.0)
        return line[0], line[1] - (1 - ended) * self.steps.prompt_slope


Bound = Literal["max_num_seqs", "KV", "ITL", "max_batched_tokens"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sequences at once of one replica, and what allows no more."""

    sequences: float
    bound: Bound

    def __str__(self) -> str:
        return f"{self.sequences:.1f} sequences by {self.bound}"


def replica_capacity(policy: ScalingPolicy, model: ReplicaModel) -> Capacity:
    """Sequences that one replica sustains, at least one. A bound that is unknown does not count.

    Independent of the live cap and token budget, so that cutting either never looks like new demand.
    """
    bounds = [Capacity(policy.highest_cap if policy.held_cap is None else policy.held_cap, "max_num_seqs")]
    if (room := kv_room(model)) is not None:
        bounds.append(Capacity(room, "KV"))
    limit = policy.itl_seconds
    if limit is not None and (room := model.most_within(limit * model.tuning.itl_margin)) is not None:
        bounds.append(Capacity(room, "ITL"))
    if model.step_tokens and (prompt := model.prompt_tokens):
        bounds.append(Capacity(model.step_tokens / prompt, "max_batched_tokens"))
    least = min(bounds, key=lambda capacity: capacity.sequences)
    return Capacity(max(least.sequences, 1.0), least.bound)


def kv_room(model: ReplicaModel) -> float | None:
    """Sequences that fill the KV pool up to the high-water mark; None while their size is unknown."""
    share = model.kv_per_sequence
    return None if share is None else model.tuning.planned_kv_usage / share


def decode_room(policy: ScalingPolicy, model: ReplicaModel) -> float | None:
    """Sequences whose step keeps the limit between tokens without a prompt; None without a limit or while unknown."""
    limit = policy.itl_seconds
    return None if limit is None else model.steps.decode_room(limit)
