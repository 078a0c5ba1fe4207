"""NVIDIA Dynamo's planner, load-based scaling of aggregated engines.

Source: ai-dynamo/dynamo at 0c6da1ec, ``components/src/dynamo/planner/core/load_scaling.py``, and at 518a7027,
``core/perf_model/agg.py``; defaults of ``config/defaults.py``. Every 5 seconds, one replica at most, nothing while the
fleet is on its way:

    easy  use = (KV in use + queued prompt tokens) / KV tokens
          up when any engine's use > up, down when all are < down: 1.0 and 0.6 for throughput, 0.4 and 0.1 for latency
    sla   step(p, kv) = c0 + c1 p + c2 kv, fitted to forward passes
          TTFT = sum of step(chunk, kv) over the chunks of (queue + a mean prompt); ITL = step(mean p, kv + a context)
          up when TTFT or ITL is above its SLA on all engines; down when with N/(N-1) of the load on every engine the
          queue's part of TTFT stays below (SLA - own) * sensitivity, ITL below SLA * sensitivity, and KV fits

Engines here tell how many requests wait, not their tokens: queued tokens are that number times the mean prompt of the
last minute. The fit is what a regression over forward passes comes to, with a sequence's share of a step spread over
its context, as the planner has it from profiling before the fleet starts. Throughput-based scaling, the planner's slow
loop on forecasts, is off, as by default.
"""

import math
from dataclasses import dataclass
from typing import Literal

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds
from peer_policies.engine_facts import EngineFacts
from peer_policies.lengths import Lengths, mean_lengths
from peer_policies.peer import Peer
from peer_policies.prometheus import Prometheus

LENGTH_WINDOW_SECONDS = 60.0
EASY_THRESHOLDS = {"throughput": (1.0, 0.6), "latency": (0.4, 0.1)}


@dataclass(frozen=True, slots=True)
class DynamoSettings:
    """Fields of the planner's configuration."""

    optimization_target: Literal["throughput", "latency", "sla"] = "throughput"
    load_adjustment_interval: float = 5.0
    load_scaling_down_sensitivity: int = 80
    """Percent of an SLA that a smaller fleet may use."""
    ttft: float | None = None
    """Milliseconds; unset takes the fleet's objective, as a user would set it (the planner's own default is 500)."""
    itl: float | None = None
    """Milliseconds; unset takes the fleet's objective (the planner's own default is 50)."""


class DynamoPlanner:
    """One planner with one pool of aggregated engines."""

    def __init__(self, settings: DynamoSettings, bounds: Bounds, facts: EngineFacts) -> None:
        self.period_seconds = settings.load_adjustment_interval
        self._settings = settings
        self._bounds = bounds
        self._facts = facts
        self._recent = Prometheus(settings.load_adjustment_interval)

    def decide(self, observation: Observation) -> Action:
        self._recent.scrape(observation)
        engines = [observation.engines[pod] for pod in observation.serving if pod in observation.engines]
        if not engines or len(engines) != observation.num_replicas:
            return Action(self._bounds.clip(observation.num_replicas))
        lengths = mean_lengths(self._recent, LENGTH_WINDOW_SECONDS, observation.now)
        if self._settings.optimization_target == "sla":
            step = self._sla(engines, lengths, observation.now)
        else:
            step = self._easy(engines, lengths)
        return Action(self._bounds.clip(observation.num_replicas + step))

    def _easy(self, engines: list[EngineStats], lengths: Lengths) -> int:
        up, down = EASY_THRESHOLDS[self._settings.optimization_target]
        uses = [(kv_tokens(e) + e.waiting * lengths.prompt) / pool_tokens(e) for e in engines]
        if any(use > up for use in uses):
            return 1
        return -1 if all(use < down for use in uses) else 0

    def _sla(self, engines: list[EngineStats], lengths: Lengths, now: float) -> int:
        if lengths.prompt <= 0:
            return 0
        model = StepModel.of(self._facts, lengths)
        prefill_rate = self._prefill_rate(now, len(engines))
        prefill = self._step(self._prefill_step(model, engines, lengths))
        decode = self._step(self._decode_step(model, engines, lengths, prefill_rate))
        if prefill > 0 or decode > 0:
            return 1
        return -1 if prefill < 0 and decode < 0 and len(engines) > 1 else 0

    @staticmethod
    def _step(verdict: tuple[bool, bool]) -> int:
        above, fits = verdict
        return 1 if above else -1 if fits else 0

    def _prefill_step(self, model: "StepModel", engines: list[EngineStats], lengths: Lengths) -> tuple[bool, bool]:
        """Whether TTFT is above its SLA everywhere, and whether it would still hold with one replica less."""
        limit = self._facts.ttft_seconds if self._settings.ttft is None else self._settings.ttft / 1000
        more = _consolidation(len(engines))
        above, fits = True, True
        for engine in engines:
            queued, kv = engine.waiting * lengths.prompt, kv_tokens(engine)
            above = above and model.ttft(queued, kv) > limit
            own = model.ttft(0.0, kv * more)
            budget = (limit - own) * self._settings.load_scaling_down_sensitivity / 100
            fits = fits and budget > 0 and model.ttft(queued * more, kv * more) - own < budget
        return above, fits

    def _decode_step(
        self, model: "StepModel", engines: list[EngineStats], lengths: Lengths, prefill_rate: float
    ) -> tuple[bool, bool]:
        """Whether ITL is above its SLA everywhere, and whether it would still hold with one replica less."""
        limit = self._facts.itl_seconds if self._settings.itl is None else self._settings.itl / 1000
        more = _consolidation(len(engines))
        above, fits = True, True
        for engine in engines:
            kv = kv_tokens(engine)
            above = above and model.itl(kv, prefill_rate) > limit
            merged = (kv + engine.waiting * lengths.prompt) * more
            allowed = limit * self._settings.load_scaling_down_sensitivity / 100
            fits = fits and merged < pool_tokens(engine) and model.itl(merged, prefill_rate) < allowed
        return above, fits

    def _prefill_rate(self, now: float, engines: int) -> float:
        """Prompt tokens that one engine computes each second."""
        tokens = self._recent.increase(
            lambda s: s.prompt_tokens_total - s.cached_prompt_tokens_total, LENGTH_WINDOW_SECONDS, now
        )
        return tokens / LENGTH_WINDOW_SECONDS / engines


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds of a step from its prompt tokens and the KV tokens it reads."""

    fixed: float
    per_prefill_token: float
    per_kv_token: float
    mean_prompt: float
    mean_context: float
    max_batched_tokens: int

    @classmethod
    def of(cls, facts: EngineFacts, lengths: Lengths) -> "StepModel":
        context = lengths.prompt + lengths.output / 2
        return cls(
            fixed=facts.fixed_seconds,
            per_prefill_token=facts.per_prefill_token_seconds + facts.per_prefill_pair_seconds * lengths.prompt / 2,
            per_kv_token=facts.per_kv_token_seconds + facts.per_decode_sequence_seconds / context,
            mean_prompt=lengths.prompt,
            mean_context=context,
            max_batched_tokens=facts.max_batched_tokens,
        )

    def ttft(self, queued_tokens: float, kv: float) -> float:
        """Seconds until a request that comes now has its first token."""
        tokens = queued_tokens + self.mean_prompt
        steps = math.ceil(tokens / self.max_batched_tokens)
        return steps * (self.fixed + self.per_kv_token * kv) + self.per_prefill_token * tokens

    def itl(self, kv: float, prefill_rate: float) -> float:
        """Seconds of a decode step; the prompt tokens in it are those that come while it runs."""
        alone = self.fixed + self.per_kv_token * (kv + self.mean_context)
        share = min(self.per_prefill_token * prefill_rate, 0.99)
        return min(alone / (1 - share), alone + self.per_prefill_token * self.max_batched_tokens)


def _consolidation(engines: int) -> float:
    return engines / (engines - 1) if engines > 1 else 1.0


def kv_tokens(engine: EngineStats) -> float:
    return float(engine.kv_blocks_used * engine.kv_block_size)


def pool_tokens(engine: EngineStats) -> float:
    return float(engine.kv_blocks * engine.kv_block_size)


DYNAMO = Peer(
    name="dynamo",
    settings=DynamoSettings,
    start=DynamoPlanner,
    search_space={
        "optimization_target": ("throughput", "latency", "sla"),
        "load_adjustment_interval": (5.0, 15.0, 30.0, 60.0),
        "load_scaling_down_sensitivity": (20, 40, 60, 80, 95),
    },
)
