"""Ray Serve: ongoing requests of all replicas over a look-back, with delays and smoothing.

Source: ray-project/ray at 00590c45, ``python/ray/serve/autoscaling_policy.py`` and
``_private/autoscaling_state.py``; defaults of ``serve.config.AutoscalingConfig``.

    desired    = running replicas * (mean of queued and running requests / (target_ongoing_requests * running replicas))
    smooth  = ceil(running + factor * (desired - running)), and one less where a lower number would round to no change
    bounded, and done when it was wished in one direction for upscale_delay_s or downscale_delay_s without a pause

The controller runs ten times a second on numbers that arrive every ``metrics_interval_s``; here it runs each
:data:`PERIOD_SECONDS`, and the delays are counted in those, as the source counts them in its own.
"""

import math
from collections import deque
from dataclasses import dataclass

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds
from peer_policies.peer import Peer

PERIOD_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RayServeSettings:
    """Fields of ``AutoscalingConfig``."""

    target_ongoing_requests: float = 2.0
    look_back_period_s: float = 30.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0


class RayServe:
    """One deployment's autoscaling state."""

    period_seconds = PERIOD_SECONDS

    def __init__(self, settings: RayServeSettings, bounds: Bounds) -> None:
        self._settings = settings
        self._bounds = bounds
        self._ongoing: deque[tuple[float, int]] = deque()
        self._counter = 0

    def decide(self, observation: Observation) -> Action:
        self._ongoing.append((observation.now, observation.in_flight + observation.held))
        while self._ongoing[0][0] <= observation.now - self._settings.look_back_period_s:
            self._ongoing.popleft()
        running = len(observation.serving)
        if running == 0:
            ongoing = self._ongoing[-1][1]
            first = math.ceil(self._settings.upscaling_factor) if ongoing else 0
            return Action(self._bounds.clip(max(first, observation.num_replicas)))
        mean = sum(count for _, count in self._ongoing) / len(self._ongoing)
        desired = self._bounds.clip(self._smooth(mean / self._settings.target_ongoing_requests, running))
        return Action(self._delay(desired, observation.num_replicas))

    def _smooth(self, desired: float, running: int) -> int:
        more = desired > running
        factor = self._settings.upscaling_factor if more else self._settings.downscaling_factor
        smooth = math.ceil(running + factor * (desired - running))
        return smooth - 1 if math.ceil(desired) < running and smooth == running else smooth

    def _delay(self, desired: int, target: int) -> int:
        if desired == target:
            self._counter = 0
            return target
        sign = 1 if desired > target else -1
        self._counter = max(self._counter, 0) + 1 if sign > 0 else min(self._counter, 0) - 1
        delay = self._settings.upscale_delay_s if sign > 0 else self._settings.downscale_delay_s
        if sign * self._counter <= int(delay / PERIOD_SECONDS):
            return target
        self._counter = 0
        return desired


RAY_SERVE = Peer(
    name="ray-serve",
    settings=RayServeSettings,
    start=lambda settings, bounds, _: RayServe(settings, bounds),
    search_space={
        "target_ongoing_requests": (2.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0),
        "look_back_period_s": (10.0, 30.0, 60.0),
        "upscale_delay_s": (0.0, 10.0, 30.0),
        "downscale_delay_s": (60.0, 300.0, 600.0),
        "upscaling_factor": (1.0, 1.5),
    },
)
