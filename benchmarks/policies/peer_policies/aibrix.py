"""What AIBrix's two algorithms share: the metric, its windows, the guard for pending pods and the cooldown.

Source: vllm-project/aibrix at e3e10f9e, ``pkg/controller/podautoscaler/{autoscaler,podautoscaler_controller}.go``,
``context/context.go``, ``metrics/client.go``. The metric is read from every pod each 10 seconds and averaged over pods;
the pipeline's result then goes through, in this order:

1. the algorithm (:mod:`.aibrix_apa`, :mod:`.aibrix_kpa`);
2. the pending-replica guard: up, pending pods count as zero load; down, as pods at target;
3. the cooldown. Its comment promises what an HPA does, the highest recommendation of the window when going down; the
   source takes the lowest, so that a cooldown makes scaling down faster, never slower. The source is followed;
4. minimum and maximum.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds

RESYNC_SECONDS = 10.0

Metric = Literal["kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"]

READ: dict[Metric, Callable[[EngineStats], float]] = {
    "kv_cache_usage_perc": lambda stats: stats.kv_usage,
    "num_requests_running": lambda stats: float(stats.running),
    "num_requests_waiting": lambda stats: float(stats.waiting),
}


@dataclass(frozen=True, slots=True)
class PodAutoscalerSettings:
    """Fields and annotations of a ``PodAutoscaler``; defaults of ``NewBaseScalingContext`` and of its samples."""

    target_metric: Metric = "kv_cache_usage_perc"
    target_value: float = 0.5
    observe_window_seconds: float = 180.0
    panic_window_seconds: float = 60.0
    max_scale_up_rate: float = 2.0
    max_scale_down_rate: float = 2.0
    scale_up_tolerance: float = 0.1
    scale_down_tolerance: float = 0.1
    panic_threshold: float = 2.0
    scale_up_cooldown_seconds: float = 0.0
    scale_down_cooldown_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Observed:
    """The metric, averaged over pods and then over each window."""

    stable: float
    panic: float


class PodAutoscaler:
    """The pipeline around one algorithm, ``(observed, replicas) -> (replicas, the value that decided)``."""

    period_seconds = RESYNC_SECONDS

    def __init__(
        self,
        settings: PodAutoscalerSettings,
        bounds: Bounds,
        algorithm: Callable[[PodAutoscalerSettings, Observed, int], tuple[int, float]],
        *,
        in_proportion: bool = False,
        summed: bool = False,
    ) -> None:
        """``in_proportion`` algorithms multiply by the number of pods; ``summed`` ones get the sum over pods."""
        self._settings = settings
        self._bounds = bounds
        self._algorithm = algorithm
        self._in_proportion = in_proportion
        self._summed = summed
        self._samples: deque[tuple[float, float]] = deque()
        self._recommendations: deque[tuple[float, int]] = deque()

    def decide(self, observation: Observation) -> Action:
        read = READ[self._settings.target_metric]
        values = [read(observation.engines[pod]) for pod in observation.serving if pod in observation.engines]
        if not values:
            return Action(observation.num_replicas)
        self._samples.append((observation.now, sum(values) / (1 if self._summed else len(values))))
        desired, value = self._algorithm(self._settings, self._observed(observation.now), observation.num_replicas)
        desired = self._guard(observation, self._bounds.clip(desired), value)
        return Action(self._bounds.clip(self._cool_down(observation.now, observation.num_replicas, desired)))

    def _observed(self, now: float) -> Observed:
        longest = max(self._settings.observe_window_seconds, self._settings.panic_window_seconds)
        while self._samples[0][0] <= now - longest:
            self._samples.popleft()
        return Observed(
            stable=self._mean(now - self._settings.observe_window_seconds),
            panic=self._mean(now - self._settings.panic_window_seconds),
        )

    def _mean(self, begin: float) -> float:
        values = [value for when, value in self._samples if when > begin]
        return sum(values) / len(values)

    def _guard(self, observation: Observation, desired: int, value: float) -> int:
        current, ready = observation.num_replicas, min(len(observation.serving), observation.num_replicas)
        pending = current - ready
        if pending <= 0 or desired == current:
            return desired
        target = self._settings.target_value
        if desired > current:
            seen = value if self._summed else value * ready / current
            adjusted = math.ceil((current if self._in_proportion else 1) * seen / target)
            return min(max(adjusted, current), desired)
        total = value if self._summed else value * ready
        return max(min(math.ceil((total + target * pending) / target), current), desired)

    def _cool_down(self, now: float, current: int, desired: int) -> int:
        up, down = self._settings.scale_up_cooldown_seconds, self._settings.scale_down_cooldown_seconds
        self._recommendations.append((now, desired))
        while self._recommendations and self._recommendations[0][0] <= now - max(up, down):
            self._recommendations.popleft()
        if desired == current:
            return current
        begin = now - (up if desired > current else down)
        recent = [then for when, then in self._recommendations if when > begin]
        if not recent:
            return desired
        return max(recent) if desired > current else min(recent)
