"""How long a replica takes from its creation until it serves, learnt from those that were seen to start. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_operator.observe import PodView

WEIGHT = 0.3
"""Of the latest start in the average: a new image or node counts after a few."""


@dataclass(slots=True)
class StartupTimes:
    """Exponentially weighted average over the starts seen."""

    last: float | None = None
    """Seconds the latest start took."""
    average: float | None = None
    starts: int = 0
    """How many were seen."""
    _known: frozenset[str] | None = None
    """Pods of the last look; None before the first, when nobody knows how often one became ready before."""
    _starting: set[str] = field(default_factory=set)

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> "StartupTimes":
        """As last written into a status, so that a restarted operator need not learn again."""
        startup = status.get("startup", {})
        return cls(startup.get("lastSeconds"), startup.get("averageSeconds"), startup.get("observedStarts", 0))

    def observe(self, pods: Iterable[PodView]) -> None:
        """One look at the pods. Only the first time that a pod becomes ready is a start."""
        seen = {pod.name: pod for pod in pods}
        if self._known is not None:
            self._starting |= seen.keys() - self._known
        self._known = frozenset(seen)
        self._starting &= seen.keys()
        for name in [name for name in self._starting if seen[name].ready]:
            self._starting.remove(name)
            seconds = seen[name].startup_seconds
            if seconds is not None:
                self.learn(seconds)

    def document(self) -> dict[str, int] | None:
        """As in the status; None before the first start."""
        if self.last is None or self.average is None:
            return None
        return {"lastSeconds": round(self.last), "averageSeconds": round(self.average), "observedStarts": self.starts}

    def learn(self, seconds: float) -> None:
        """Take one start in."""
        self.last = seconds
        self.average = seconds if self.average is None else self.average + WEIGHT * (seconds - self.average)
        self.starts += 1
