"""Pods of a fleet that have served, in which run, and how often each has ended since."""

from dataclasses import dataclass, field

from paternoster_operator.observed import Observed, PodFields

STEADY_SECONDS = 300.0
"""Length of a run after which the ends before it no longer count."""
LOOP_ENDS = 3
"""Ends within such runs from which an engine that has served is taken to end again and again."""


@dataclass(slots=True)
class ServedPods:
    """Pods of a fleet that have served, and how often each had ended when it last ran for long."""

    _steady_ends: dict[str, int] = field(default_factory=dict)
    """Ends as of its last run of :data:`STEADY_SECONDS`, or else as of when it served first, by the pod's name."""
    _served_ends: dict[str, int] = field(default_factory=dict)
    """Ends as of the last run in which it served."""

    def recall_pods(self, observed: Observed) -> PodFields:
        """Fields that are remembered of the pods of ``observed``, by their name."""
        names = {pod.name for pod in observed.pods}
        self._steady_ends, self._served_ends = (
            {name: ends for name, ends in before.items() if name in names}
            for before in (self._steady_ends, self._served_ends)
        )
        for pod in observed.pods:
            lasted = 0.0 if pod.ended is None else pod.ended.lasted_seconds or 0.0
            if pod.ready:
                self._served_ends[pod.name] = pod.ends
                if pod.name not in self._steady_ends or pod.has_run_since(STEADY_SECONDS, observed.time):
                    self._steady_ends[pod.name] = pod.ends
            elif pod.name not in self._served_ends and lasted >= STEADY_SECONDS:  # another operator saw it serve
                self._steady_ends[pod.name] = self._served_ends[pod.name] = pod.ends - 1
        ended = [pod for pod in observed.pods if not pod.ready and pod.ends > self._served_ends.get(pod.name, pod.ends)]
        recover = {pod.name for pod in ended if pod.ends - self._steady_ends[pod.name] < LOOP_ENDS}
        return {
            pod.name: {
                "has_served": pod.name in self._served_ends,
                "served_in_this_run": self._served_ends.get(pod.name) == pod.ends,
                "recovers": pod.name in recover,
            }
            for pod in observed.pods
        }
