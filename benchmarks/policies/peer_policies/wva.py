"""llm-d's Workload Variant Autoscaler, saturation analyzer V2, which acts through an HPA.

Source: llm-d/llm-d-workload-variant-autoscaler, ``internal/engines/analyzers/saturation_v2/analyzer.go`` at b28a4f66,
``internal/engines/pipeline/cost_aware_optimizer.go`` at 74afe4ce, and the chart's HPA; thresholds of the default
ConfigMap. For each replica, in tokens of KV cache:

    k1 = KV tokens * kvCacheThreshold
    k2 = tokens in use                          when the queue is >= queueLengthThreshold (remembered, 10 values)
         mean of what is remembered             for the same class of output length
         min(B O / (I + O), S) * (I + O / 2)    B token budget of a step, S max_num_seqs, I and O mean lengths
    capacity = median over replicas of min(k1, k2)
    demand   = sum of (tokens in use + queue * I)
    required = demand / scaleUpThreshold - (ready + pending) * capacity  -> add ceil(required / capacity)
    spare    = ready * capacity - demand / scaleDownBoundary             -> take floor(spare / capacity)

KV use and queue are ``max_over_time[1m]``, lengths are over five minutes. The HPA follows the published
``wva_desired_replicas`` with ``averageValue: 1``; its tolerance of 10 % hides a step of one above ten replicas.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds
from peer_policies.engine_facts import EngineFacts
from peer_policies.hpa import (
    SYNC_PERIOD_SECONDS,
    Behavior,
    HorizontalPodAutoscaler,
    Rate,
    ScalingRules,
)
from peer_policies.lengths import Lengths, mean_lengths
from peer_policies.peer import Peer
from peer_policies.prometheus import Prometheus

PEAK_WINDOW_SECONDS = 60.0
LENGTH_WINDOW_SECONDS = 300.0
REMEMBERED = 10
OUTPUT_CLASSES = (100.0, 500.0, 1500.0, 3000.0, 6000.0)
"""Mean output lengths at which a class of workload ends."""


@dataclass(frozen=True, slots=True)
class WvaSettings:
    """The ConfigMap ``wva-saturation-scaling-config`` and the chart's HPA."""

    kv_cache_threshold: float = 0.80
    queue_length_threshold: int = 5
    scale_up_threshold: float = 0.85
    scale_down_boundary: float = 0.70
    optimization_interval_seconds: float = 60.0
    scrape_interval_seconds: float = 15.0
    stabilization_window_seconds: float = 240.0
    """Window of the HPA, in both directions."""
    pods_per_period: int = 10
    period_seconds: float = 150.0


class SaturationAnalyzer:
    """Desired replicas of one variant; remembers the capacity that saturated replicas showed."""

    def __init__(self, settings: WvaSettings, facts: EngineFacts) -> None:
        self._settings = settings
        self._facts = facts
        self._observed: dict[int, deque[float]] = {}

    def desired(
        self,
        kv_usage: dict[str, float],
        queue: dict[str, float],
        engines: dict[str, EngineStats],
        lengths: Lengths,
        *,
        replicas: int,
        pending: int,
    ) -> int:
        """Replicas to have; ``kv_usage`` (0..1) and ``queue`` (requests) are each replica's peaks."""
        capacities: list[float] = []
        demand = 0.0
        for pod, stats in engines.items():
            tokens = stats.kv_blocks * stats.kv_block_size
            used = kv_usage[pod] * tokens
            demand += used + queue[pod] * lengths.prompt
            k1 = tokens * self._settings.kv_cache_threshold
            capacities.append(min(k1, self._compute_bound(queue[pod], used, lengths, k1)))
        if not capacities:
            return replicas
        capacity = statistics.median(capacities)
        if capacity <= 0:
            return replicas
        ready = max(replicas - pending, 0)
        required = demand / self._settings.scale_up_threshold - (ready + pending) * capacity
        if required > 0:
            return replicas + math.ceil(required / capacity)
        spare = ready * capacity - demand / self._settings.scale_down_boundary
        return max(1, replicas - math.floor(spare / capacity)) if spare > 0 else replicas

    def _compute_bound(self, queue: float, used: float, lengths: Lengths, k1: float) -> float:
        output_class = sum(lengths.output >= end for end in OUTPUT_CLASSES)
        if queue >= self._settings.queue_length_threshold and used > 0:
            self._observed.setdefault(output_class, deque(maxlen=REMEMBERED)).append(used)
            return used
        if output_class in self._observed:
            return statistics.mean(self._observed[output_class])
        if lengths.output <= 0:
            return k1
        budget = self._facts.max_batched_tokens
        steady = min(budget * lengths.output / (lengths.prompt + lengths.output), self._facts.max_num_seqs)
        return steady * (lengths.prompt + lengths.output / 2)


class Wva:
    """The controller, the Prometheus it asks, and the HPA that follows it."""

    # Half an HPA period, so that a sample is as old as it is on average when it is read.
    period_seconds = SYNC_PERIOD_SECONDS / 2

    def __init__(self, settings: WvaSettings, bounds: Bounds, facts: EngineFacts) -> None:
        self._settings = settings
        self._prometheus = Prometheus(settings.scrape_interval_seconds)
        self._analyzer = SaturationAnalyzer(settings, facts)
        rules = ScalingRules(
            settings.stabilization_window_seconds, (Rate("Pods", settings.pods_per_period, settings.period_seconds),)
        )
        self._hpa = HorizontalPodAutoscaler(bounds, Behavior(scale_up=rules, scale_down=rules))
        self._published: int | None = None
        self._next_analysis: float | None = None
        self._next_sync = 0.0

    def decide(self, observation: Observation) -> Action:
        self._prometheus.scrape(observation)
        if self._next_analysis is None:
            self._next_analysis = self._next_sync = observation.now + self.period_seconds
        if observation.now >= self._next_analysis and self._prometheus.latest():
            self._next_analysis += self._settings.optimization_interval_seconds
            self._published = self._analyze(observation)
        if observation.now < self._next_sync or self._published is None:
            return Action(observation.num_replicas)
        self._next_sync += SYNC_PERIOD_SECONDS
        return Action(self._hpa.sync(observation.now, observation.num_replicas, self._published, 1.0))

    def _analyze(self, observation: Observation) -> int:
        prometheus = self._prometheus
        return self._analyzer.desired(
            prometheus.peak(lambda stats: stats.kv_usage, PEAK_WINDOW_SECONDS, observation.now),
            prometheus.peak(lambda stats: float(stats.waiting), PEAK_WINDOW_SECONDS, observation.now),
            dict(prometheus.latest()),
            mean_lengths(prometheus, LENGTH_WINDOW_SECONDS, observation.now),
            replicas=observation.num_replicas,
            pending=max(observation.num_replicas - len(observation.serving), 0),
        )


WVA = Peer(
    name="wva",
    settings=WvaSettings,
    start=Wva,
    search_space={
        "kv_cache_threshold": (0.6, 0.7, 0.8, 0.9),
        "scale_up_threshold": (0.6, 0.7, 0.85, 0.95),
        "scale_down_boundary": (0.4, 0.55, 0.7, 0.8),
        "optimization_interval_seconds": (15.0, 30.0, 60.0),
        "stabilization_window_seconds": (0.0, 60.0, 240.0),
    },
)
