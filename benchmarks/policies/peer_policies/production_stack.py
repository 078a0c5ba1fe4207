"""vLLM production-stack: KEDA on waiting requests, which acts through an HPA.

Source: vllm-project/production-stack at a6c01db0, ``helm/templates/scaledobject-vllm.yaml`` (default trigger: the
Prometheus query ``vllm:num_requests_waiting``, threshold 5) and kedacore/keda, ``pkg/scalers/prometheus_scaler.go``.

    desired = ceil(sum of waiting requests / threshold), by the HPA's rules

The chart's default query has no ``sum()``; KEDA refuses an answer of several series, so with more than one replica it
works only with the ``sum`` that the stack's tutorial writes, and that is what runs here. KEDA's ``pollingInterval`` and
``cooldownPeriod`` matter between zero and one replica alone: above, the HPA asks every 15 seconds, and each question
goes to Prometheus. No queue means a desired for zero replicas, so a busy fleet without a queue shrinks to its minimum.
"""

from dataclasses import dataclass

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds
from peer_policies.hpa import (
    SYNC_PERIOD_SECONDS,
    Behavior,
    HorizontalPodAutoscaler,
    Rate,
    ScalingRules,
)
from peer_policies.peer import Peer
from peer_policies.prometheus import Prometheus


@dataclass(frozen=True, slots=True)
class ProductionStackSettings:
    """Fields of the chart's ``keda`` block and of the ScaledObject it makes."""

    threshold: float = 5.0
    """Waiting requests for each replica."""
    scale_down_stabilization_window_seconds: float | None = None
    """``advanced.horizontalPodAutoscalerConfig.behavior.scaleDown``; unset leaves the HPA without behavior."""
    scale_down_pods: int | None = None
    """Most replicas taken in a minute; unset takes as many as wished."""
    scrape_interval_seconds: float = 15.0
    """Interval of the chart's ServiceMonitor."""


class ProductionStack:
    """A ScaledObject on ``sum(vllm:num_requests_waiting)``."""

    # Half a period, so that a sample is as old as it is on average when the HPA asks.
    period_seconds = SYNC_PERIOD_SECONDS / 2

    def __init__(self, settings: ProductionStackSettings, bounds: Bounds) -> None:
        self._settings = settings
        self._prometheus = Prometheus(settings.scrape_interval_seconds)
        self._hpa = HorizontalPodAutoscaler(bounds, _behavior(settings))
        self._next_sync: float | None = None

    def decide(self, observation: Observation) -> Action:
        self._prometheus.scrape(observation)
        if self._next_sync is None:
            self._next_sync = observation.now + self.period_seconds
        if observation.now < self._next_sync or not self._prometheus.latest():
            return Action(observation.num_replicas)
        self._next_sync += SYNC_PERIOD_SECONDS
        waiting = sum(stats.waiting for stats in self._prometheus.latest().values())
        return Action(self._hpa.sync(observation.now, observation.num_replicas, waiting, self._settings.threshold))


def _behavior(settings: ProductionStackSettings) -> Behavior | None:
    window, pods = settings.scale_down_stabilization_window_seconds, settings.scale_down_pods
    if window is None and pods is None:
        return None
    rates = Behavior().scale_down.policies if pods is None else (Rate("Pods", pods, 60.0),)
    return Behavior(scale_down=ScalingRules(300.0 if window is None else window, rates))


PRODUCTION_STACK = Peer(
    name="production-stack",
    settings=ProductionStackSettings,
    start=lambda settings, bounds, _: ProductionStack(settings, bounds),
    search_space={
        "threshold": (0.5, 1.0, 2.0, 5.0, 10.0, 20.0),
        "scale_down_stabilization_window_seconds": (None, 60.0, 300.0, 600.0, 1200.0),
        "scale_down_pods": (None, 1, 2),
    },
)
