"""List events about pods that do not start, at a rate at which many such pods cost the API server little.

Events are listed and not watched, since a watch would bring every pod's events of every namespace for the few that
matter. They are listed only where a pod's status does not name a cause, for a few pods of a fleet, and less often the
longer a pod has waited.
"""

import logging
from dataclasses import dataclass, field

from paternoster_operator.cluster.port import Cluster, ClusterError, Key
from paternoster_operator.observed import Observed, PodFields
from paternoster_operator.pods.events import PodEvent, read_events
from paternoster_operator.pods.view import PodView

log = logging.getLogger(__name__)

MAX_PODS = 3
"""Most pods of a fleet whose events are listed: pods of one template wait for the same."""
MAX_CLAIMS = 2
"""Most volume claims of a pod whose events are listed."""
MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 4.0, 60.0
"""Bounds of the time between two lists for one pod."""
INTERVAL_SHARE = 0.25
"""Interval as a share of the time since the first list."""


@dataclass(slots=True)
class _Polled:
    """When a pod's events are listed, and what was found."""

    since: float
    """Time of the first list."""
    due: float
    events: tuple[PodEvent, ...] = ()


@dataclass(slots=True)
class EventReader:
    """Lists the events about the pods of one fleet."""

    _polled: dict[str, _Polled] = field(default_factory=dict)
    """Polled pods by name."""
    _refusal: str = ""
    """Error of the last list; empty after a success."""

    async def read_events(self, observed: Observed, cluster: Cluster, key: Key, clock: float) -> PodFields:
        """Events of the pods whose status names no cause, by the pod's name; ``clock`` is the operator's.

        If the API server refuses, the events of the last list stay.
        """
        pods = [pod for pod in observed.starting if pod.needs_events(observed.time) or pod.waits_for_volume][:MAX_PODS]
        self._polled = {pod.name: self._polled.get(pod.name) or _Polled(clock, clock) for pod in pods}
        for pod in pods:
            polled = self._polled[pod.name]
            if clock >= polled.due:
                await self._list(pod, polled, cluster, key)
                interval = max(MIN_INTERVAL_SECONDS, INTERVAL_SHARE * (clock - polled.since))
                polled.due = clock + min(MAX_INTERVAL_SECONDS, interval)
        return {name: {"events": polled.events} for name, polled in self._polled.items()}

    async def _list(self, pod: PodView, polled: _Polled, cluster: Cluster, key: Key) -> None:
        objects = [("Pod", pod.name)]
        if pod.waits_for_volume:
            objects = [("PersistentVolumeClaim", name) for name in pod.volume_claims[:MAX_CLAIMS]]
        try:
            documents = [
                document for kind, name in objects for document in await cluster.list_events(key.namespace, kind, name)
            ]
        except ClusterError as error:
            if str(error) != self._refusal:
                log.warning("%s: cannot list events about %s: %s", key, pod.name, error)
            self._refusal = str(error)
        else:
            polled.events, self._refusal = read_events(documents), ""
