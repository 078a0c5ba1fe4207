"""How long a replica takes from its creation until it serves, learnt from those that were seen to start. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract.stats import EngineStats, StartPart
from paternoster_operator.pods.view import PodView

WEIGHT = 0.3
"""Weight of the latest start in the average: a new image or node counts after a few."""


@dataclass(slots=True)
class StartupTimes:
    """Exponentially weighted average over the starts seen."""

    last: float | None = None
    """Seconds the latest start took."""
    average: float | None = None
    starts: int = 0
    """How many were seen."""
    parts: Mapping[str, int] | None = None
    """Parts of the latest start, as in the status; None where its engine did not report them."""
    _seen_pods: frozenset[str] | None = None
    """Pods of the last reconcile; None before the first, when earlier starts are unknown."""
    _starting: set[str] = field(default_factory=set)

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> "StartupTimes":
        """Read times last written into a status, so that a restarted operator need not learn again."""
        startup = status.get("startup", {})
        last, average = startup.get("lastSeconds"), startup.get("averageSeconds")
        return cls(last, average, startup.get("observedStarts", 0), startup.get("lastParts"))

    def observe(self, pods: Iterable[PodView], stats: Mapping[str, EngineStats]) -> dict[str, Any] | None:
        """Add the pods of one reconcile, and the stats of their engines by pod name; returns all as in the status.

        Only the first time that a pod becomes ready is a start.
        """
        seen = {pod.name: pod for pod in pods}
        if self._seen_pods is not None:
            self._starting |= seen.keys() - self._seen_pods
        self._seen_pods = frozenset(seen)
        self._starting &= seen.keys()
        for name in [name for name in self._starting if seen[name].ready]:
            self._starting.remove(name)
            seconds = seen[name].startup_seconds
            if seconds is not None:
                self.add_start(seconds)
                self.parts = _split_start(seen[name], stats.get(name))
        return self.to_document()

    def to_document(self) -> dict[str, Any] | None:
        """Write the times for the status; None before the first start."""
        if self.last is None or self.average is None:
            return None
        document: dict[str, Any] = {
            "lastSeconds": round(self.last), "averageSeconds": round(self.average), "observedStarts": self.starts
        }  # fmt: skip
        return document if self.parts is None else {**document, "lastParts": dict(self.parts)}

    def add_start(self, seconds: float) -> None:
        """Take one start in."""
        self.last = seconds
        self.average = seconds if self.average is None else self.average + WEIGHT * (seconds - self.average)
        self.starts += 1


def _split_start(pod: PodView, engine_stats: EngineStats | None) -> dict[str, int] | None:
    if engine_stats is None or not engine_stats.start_seconds:
        return None
    seconds = {part: engine_stats.start_seconds.get(part, 0.0) for part in StartPart}
    return {
        "download": round(pod.download_seconds + seconds[StartPart.DOWNLOAD]),
        "imports": round(seconds[StartPart.IMPORTS]),
        "load": round(seconds[StartPart.LOAD]),
        "warmUp": round(seconds[StartPart.WARM_UP]),
    }
