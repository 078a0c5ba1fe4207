"""Children sent to the cluster: only what differs, what somebody changed, and what is gone."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paternoster_operator.cluster.port import Cluster, ClusterError, Event, ForeignObject, Key, Object

log = logging.getLogger(__name__)

WATCHED = frozenset({"Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"})
"""Kinds that :meth:`Cluster.get_child` returns; no watch reports changes of the others."""
OPTIONAL = {"NetworkPolicy": "networking.k8s.io/v1"}
"""API versions of kinds that a fleet has or lacks by a setting: one that is left from before is removed."""


@dataclass(slots=True)
class _Sent:
    child: Object
    version: int
    """Of the object as it then was."""
    seen: bool = False
    """The cache has had it: if it has not any more, it is gone."""


@dataclass(slots=True)
class AppliedChildren:
    """What was sent last, by kind."""

    sent: dict[str, _Sent] = field(default_factory=dict)
    all_sent_at: float = float("-inf")
    """When every child was last sent, changed or not, on the operator's clock."""
    unremoved: str = ""
    """Why a child that is not wanted any more may be there still, as it was recorded last."""

    async def apply(
        self, cluster: Cluster, key: Key, children: Sequence[Object], *, every: bool, unwatched: bool
    ) -> Mapping[str, Any] | None:
        """Send what has to be sent: all of it with ``every``, and what no watch reports with ``unwatched``.

        With ``every`` it also removes what a setting has made superfluous: of the name of the last of ``children``.

        Returns the Deployment as it is now, where it was sent. Raises :class:`ClusterError` at the first refusal; for a
        :class:`ForeignObject` it names all of them, so that they can be removed at once.
        """
        deployment = None
        rest = iter(children)
        for child in rest:
            kind = child["kind"]
            if every or (unwatched and kind not in WATCHED) or self._differs_from(child, cluster.get_child(key, kind)):
                try:
                    now = await cluster.apply(child)
                except ForeignObject as foreign:
                    raise await _all_foreign(cluster, foreign, rest) from foreign
                self.sent[kind] = _Sent(child, 0 if now is None else _version_of(now))
                if kind == "Deployment":
                    deployment = now
        for kind in OPTIONAL.keys() - {child["kind"] for child in children} if every else ():
            metadata = children[-1]["metadata"]
            await self._remove_child(cluster, key, {"apiVersion": OPTIONAL[kind], "kind": kind, "metadata": metadata})
        return deployment

    async def _remove_child(self, cluster: Cluster, key: Key, like: Object) -> None:
        """Remove the child with the kind, name and owner of ``like``, and record that; a refusal is recorded once."""
        what = f"{like['kind']} {like['metadata']['name']}"
        try:
            if await cluster.remove_child(like):
                await cluster.record_event(key, Event("Normal", "ChildRemoved", f"{what}: a setting has turned it off"))
            self.unremoved = ""
        except ClusterError as error:
            if error.retriable:
                raise
            if str(error) != self.unremoved:
                self.unremoved = str(error)
                left = f"{what} may be left of an earlier installation, and still hold: {error}"
                log.warning("%s: %s", key, left)
                await cluster.record_event(key, Event("Warning", "ChildLeft", left))

    def _differs_from(self, child: Object, there: Mapping[str, Any] | None) -> bool:
        sent = self.sent.get(child["kind"])
        if sent is None or sent.child != child:
            return True
        if child["kind"] not in WATCHED:
            return False
        if there is None:
            return sent.seen
        sent.seen = True
        return _version_of(there) > sent.version


async def _all_foreign(cluster: Cluster, first: ForeignObject, rest: Iterable[Object]) -> ForeignObject:
    """``first`` with the objects that belong to another owner among those that ``rest`` would change."""
    objects = [*first.objects]
    for child in rest:
        try:
            await cluster.check_owner(child)
        except ForeignObject as foreign:
            objects += foreign.objects
    return ForeignObject(objects, first.owner)


def _version_of(obj: Mapping[str, Any]) -> int:
    """The generation grows with each change of the spec; an object that has none has a version for every change."""
    metadata = obj["metadata"]
    return int(metadata.get("generation") or metadata.get("resourceVersion") or 0)
