"""The Kubernetes HorizontalPodAutoscaler for one external metric with an AverageValue target.

Source: kubernetes/kubernetes v1.35.4, ``pkg/controller/podautoscaler/{horizontal,replica_calculator}.go`` and
``pkg/apis/autoscaling/v2/defaults.go``.

    ratio   = usage / (target * replicas)
    desired = replicas                if 1 - tolerance <= ratio <= 1 + tolerance
              ceil(usage / target)    otherwise

then stabilized, limited and clipped. Without ``behavior`` the highest recommendation of the last five minutes counts,
and the limit upwards is max(2 * replicas, 4); with it, both directions have a window and a rate.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from peer_policies.bounds import Bounds

DOWNSCALE_STABILIZATION_SECONDS = 300.0
SYNC_PERIOD_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Rate:
    """``HPAScalingPolicy``: how much may change in a period."""

    type: Literal["Pods", "Percent"]
    value: int
    period_seconds: float

    def limit(self, replicas_at_start: int, sign: int) -> int:
        """Replicas that may be reached from those at the period's start; percent rounds in favour of the change."""
        if self.type == "Pods":
            return replicas_at_start + sign * self.value
        reached = replicas_at_start * (1 + sign * self.value / 100)
        return math.ceil(reached) if sign > 0 else int(reached)


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """``HPAScalingRules`` with ``selectPolicy: Max``: the rate that allows the most change counts."""

    stabilization_window_seconds: float
    policies: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Behavior:
    """``HorizontalPodAutoscalerBehavior`` with the API server's defaults."""

    scale_up: ScalingRules = field(
        default_factory=lambda: ScalingRules(0.0, (Rate("Pods", 4, 15.0), Rate("Percent", 100, 15.0)))
    )
    scale_down: ScalingRules = field(
        default_factory=lambda: ScalingRules(DOWNSCALE_STABILIZATION_SECONDS, (Rate("Percent", 100, 15.0),))
    )


class HorizontalPodAutoscaler:
    """One HPA object's controller; :meth:`sync` is called every :data:`SYNC_PERIOD_SECONDS`."""

    def __init__(self, bounds: Bounds, behavior: Behavior | None = None, tolerance: float = 0.1) -> None:
        self._bounds = bounds
        self._behavior = behavior
        self._tolerance = tolerance
        self._recommendations: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()

    def sync(self, now: float, replicas: int, usage: float, target: float) -> int:
        """Replicas to have from now on.

        ``usage`` is the sum of the metric over the fleet, ``target`` the ``averageValue`` for each replica.
        """
        if not self._recommendations:
            self._recommendations.append((now, replicas))
        if replicas != self._bounds.clip(replicas):
            desired = self._bounds.clip(replicas)
        else:
            desired = self._normalize(now, replicas, self._recommend(replicas, usage, target))
        if desired != replicas:
            self._changes.append((now, desired - replicas))
        return desired

    def _recommend(self, replicas: int, usage: float, target: float) -> int:
        ratio = usage / (target * replicas)
        if 1 - self._tolerance <= ratio <= 1 + self._tolerance:
            return replicas
        return math.ceil(usage / target)

    def _normalize(self, now: float, replicas: int, desired: int) -> int:
        if self._behavior is None:
            steady = max([desired, *self._within(now, DOWNSCALE_STABILIZATION_SECONDS)])
            self._remember(now, desired, DOWNSCALE_STABILIZATION_SECONDS)
            return max(self._bounds.minimum, min(steady, self._bounds.maximum, max(2 * replicas, 4)))
        up, down = self._behavior.scale_up, self._behavior.scale_down
        lowest = min([desired, *self._within(now, up.stabilization_window_seconds)])
        highest = max([desired, *self._within(now, down.stabilization_window_seconds)])
        steady = min(max(replicas, lowest), highest)
        self._remember(now, desired, max(up.stabilization_window_seconds, down.stabilization_window_seconds))
        if steady > replicas:
            limit = max(self._reach(now, replicas, rate, +1) for rate in up.policies)
            return min(steady, max(min(limit, self._bounds.maximum), replicas))
        if steady < replicas:
            limit = min(self._reach(now, replicas, rate, -1) for rate in down.policies)
            return max(steady, min(max(limit, self._bounds.minimum), replicas))
        return steady

    def _reach(self, now: float, replicas: int, rate: Rate, sign: int) -> int:
        changed = sum(change for when, change in self._changes if when > now - rate.period_seconds)
        return rate.limit(replicas - changed, sign)

    def _within(self, now: float, window_seconds: float) -> list[int]:
        return [desired for when, desired in self._recommendations if when > now - window_seconds]

    def _remember(self, now: float, desired: int, window_seconds: float) -> None:
        self._recommendations.append((now, desired))
        while self._recommendations[0][0] < now - window_seconds and len(self._recommendations) > 1:
            self._recommendations.popleft()
        longest = 0.0
        if self._behavior is not None:
            rates = (*self._behavior.scale_up.policies, *self._behavior.scale_down.policies)
            longest = max(rate.period_seconds for rate in rates)
        while self._changes and self._changes[0][0] <= now - longest:
            self._changes.popleft()
