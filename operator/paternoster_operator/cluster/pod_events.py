"""Events about pods that do not start, read from the cluster seldom enough that many such pods cost it little.

They are listed and not watched: a watch would bring every pod's events of every namespace for the few that matter, and
what is listed is all there is, as of now. Only what a pod's status leaves open is asked for, of a few pods of a fleet,
and the longer a pod has waited the more seldom.
"""

import logging
from dataclasses import dataclass, field

from paternoster_operator.cluster.port import Cluster, ClusterError, Key
from paternoster_operator.observe import Observed
from paternoster_operator.pods.events import PodEvent, read_events
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.kubelet_events import wants_events
from paternoster_operator.report.causes.unscheduled import waits_for_volume

log = logging.getLogger(__name__)

MAX_PODS = 3
"""Pods of a fleet that are asked about: those of one template wait for the same."""
MAX_CLAIMS = 2
FIRST_SECONDS, LAST_SECONDS = 4.0, 60.0
"""Time between two questions about one pod, at its beginning and at most."""
SHARE = 0.25
"""Of the time that a pod has been asked about, until the next question."""


@dataclass(slots=True)
class _Asked:
    since: float
    """When it was first asked about."""
    due: float
    events: tuple[PodEvent, ...] = ()


@dataclass(slots=True)
class EventReader:
    """What is known of the events about the pods of one fleet."""

    _asked: dict[str, _Asked] = field(default_factory=dict)
    """By the pod's name."""
    _refusal: str = ""
    """Why the cluster did not answer last."""

    async def add_to(self, observed: Observed, cluster: Cluster, key: Key, clock: float, now: str) -> Observed:
        """``observed`` with the events that its pods' status leaves open; ``now`` is the RFC 3339 time of ``clock``.

        Without an answer the last events are known on: it is the status that counts.
        """
        wanted = [pod for pod in observed.starting if wants_events(pod, now) or waits_for_volume(pod)][:MAX_PODS]
        self._asked = {pod.name: self._asked.get(pod.name) or _Asked(clock, clock) for pod in wanted}
        for pod in wanted:
            asked = self._asked[pod.name]
            if clock >= asked.due:
                await self._ask(pod, asked, cluster, key)
                asked.due = clock + min(LAST_SECONDS, max(FIRST_SECONDS, SHARE * (clock - asked.since)))
        return observed.with_events({name: asked.events for name, asked in self._asked.items()})

    async def _ask(self, pod: PodView, asked: _Asked, cluster: Cluster, key: Key) -> None:
        objects = [("Pod", pod.name)]
        if waits_for_volume(pod):
            objects = [("PersistentVolumeClaim", name) for name in pod.volume_claims[:MAX_CLAIMS]]
        try:
            documents = [
                document for kind, name in objects for document in await cluster.list_events(key.namespace, kind, name)
            ]
        except ClusterError as error:
            if str(error) != self._refusal:
                log.warning("%s: events about %s are not read: %s", key, pod.name, error)
            self._refusal = str(error)
        else:
            asked.events, self._refusal = read_events(documents), ""
