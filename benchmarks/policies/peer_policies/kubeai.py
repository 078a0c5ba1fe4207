"""KubeAI: active requests at its own proxy, averaged over ten minutes.

Source: kubeai-project/kubeai at f442a2cd (chart 0.22.1), ``internal/modelautoscaler/autoscaler.go``,
``internal/modelclient/scale.go``, ``internal/movingaverage/simple.go``, ``internal/config/system.go``.

    desired = ceil(mean of the last (timeWindow / interval) samples of active requests / targetRequests)

up at once; down, straight to the target, after ``ceil(scaleDownDelaySeconds / interval)`` observations of less.
The window begins full of zeros, as in the source, so a new model is judged idle for its first minutes. The
documentation calls the delay a time; in the source it is a number of observations, which is reset only by one that is
not lower.
"""

import math
from collections import deque
from dataclasses import dataclass

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds
from peer_policies.peer import Peer


@dataclass(frozen=True, slots=True)
class KubeAISettings:
    """Fields of ``Model.spec`` and of the system's ``modelAutoscaling``."""

    target_requests: int = 100
    """Active requests, running and queued, for each replica."""
    scale_down_delay_seconds: int = 30
    interval_seconds: float = 10.0
    time_window_seconds: float = 600.0


class KubeAI:
    """One model's autoscaler."""

    def __init__(self, settings: KubeAISettings, bounds: Bounds) -> None:
        self.period_seconds = settings.interval_seconds
        self._settings = settings
        self._bounds = bounds
        count = max(1, math.ceil(settings.time_window_seconds / settings.interval_seconds))
        self._active: deque[float] = deque([0.0] * count, maxlen=count)
        self._lower = 0

    def decide(self, observation: Observation) -> Action:
        self._active.append(float(observation.in_flight + observation.held))
        mean = sum(self._active) / len(self._active)
        wanted = self._bounds.clip(math.ceil(mean / self._settings.target_requests))
        if wanted >= observation.num_replicas:
            self._lower = 0
            return Action(wanted)
        if self._lower < math.ceil(self._settings.scale_down_delay_seconds / self._settings.interval_seconds):
            self._lower += 1
            return Action(observation.num_replicas)
        return Action(wanted)


KUBEAI = Peer(
    name="kubeai",
    settings=KubeAISettings,
    start=lambda settings, bounds, _: KubeAI(settings, bounds),
    search_space={
        "target_requests": (8, 16, 24, 32, 48, 64, 100, 150),
        "scale_down_delay_seconds": (30, 120, 300),
        "time_window_seconds": (30.0, 60.0, 120.0, 300.0, 600.0),
    },
)
