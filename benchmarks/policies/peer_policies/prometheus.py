"""What a Prometheus server remembers of the engines, for the peers that ask one instead of the engines.

Between a scrape and a query lies up to one scrape interval; the windows are those of PromQL's ``max_over_time`` and
``increase``, without its extrapolation to the window's edges.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.observation import Observation

RETENTION_SECONDS = 900.0
"""Longest window that a peer asks for, and more."""


@dataclass(slots=True)
class Prometheus:
    """Scrapes of the serving engines; a target that is gone is stale at once."""

    scrape_interval_seconds: float
    _scrapes: deque[tuple[float, Mapping[str, EngineStats]]] = field(default_factory=deque)

    def scrape(self, observation: Observation) -> None:
        """Take a scrape when one is due."""
        if self._scrapes and observation.now < self._scrapes[-1][0] + self.scrape_interval_seconds:
            return
        self._scrapes.append(
            (
                observation.now,
                {pod: observation.engines[pod] for pod in observation.serving if pod in observation.engines},
            )
        )
        while self._scrapes[0][0] < observation.now - RETENTION_SECONDS:
            self._scrapes.popleft()

    def latest(self) -> Mapping[str, EngineStats]:
        """The last scrape: an instant vector, by pod."""
        return self._scrapes[-1][1] if self._scrapes else {}

    def peak(self, value: Callable[[EngineStats], float], window_seconds: float, now: float) -> dict[str, float]:
        """``max_over_time(value[window])`` by pod, of the pods in the last scrape."""
        peaks = {pod: value(stats) for pod, stats in self.latest().items()}
        for when, stats in self._scrapes:
            if when > now - window_seconds:
                for pod in peaks.keys() & stats.keys():
                    peaks[pod] = max(peaks[pod], value(stats[pod]))
        return peaks

    def increase(self, counter: Callable[[EngineStats], float], window_seconds: float, now: float) -> float:
        """``sum(increase(counter[window]))`` over all pods; a restarted engine counts from zero."""
        total = 0.0
        previous: Mapping[str, EngineStats] = {}
        for when, stats in self._scrapes:
            if when > now - window_seconds:
                for pod, sample in stats.items():
                    before = previous.get(pod)
                    if before is not None:
                        same = before.instance == sample.instance
                        total += counter(sample) - (counter(before) if same else 0.0)
                previous = stats
        return total
