"""Children sent to the cluster: only what differs, what somebody changed, and what is gone."""

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paternoster_operator.cluster.foreign_fields import describe_foreign_fields
from paternoster_operator.cluster.port import Cluster, ClusterError, Event, ForeignObject, Key, Object

log = logging.getLogger(__name__)

MOST_REMOVALS = 3
"""Most removals of fields that other managers set, for each child between two times that all are sent: one that sets
them again each time would have new pods started for ever."""
WATCHED = frozenset({"Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"})
"""Kinds that :meth:`Cluster.get_child` returns; no watch reports changes of the others."""
UNSEEN_SECONDS = 10.0
"""A child that was sent and that no look has found for so long is gone: it went before the first one."""


@dataclass(slots=True)
class _Sent:
    child: Object
    at: float
    """On the operator's clock."""
    version: int
    """Version of the object as it then was."""
    seen: bool = False
    """A look found it in the cache: if it is not there any more, it is gone."""
    there: Mapping[str, Any] | None = None
    """The Deployment as it then was."""


@dataclass(slots=True)
class AppliedChildren:
    """What was sent last, by kind."""

    sent: dict[str, _Sent] = field(default_factory=dict)
    all_sent_at: float = float("-inf")
    """When every child was last sent, changed or not, on the operator's clock."""
    unremoved: str = ""
    """Why a child that a setting has turned off may still be there, as it was recorded last."""
    foreign: dict[str, str] = field(default_factory=dict)
    """Fields of other managers that are not removed, in words, by kind."""
    removals: Counter[str] = field(default_factory=Counter)
    """How often such fields were removed since all children were sent, by kind."""

    async def apply(
        self,
        cluster: Cluster,
        key: Key,
        children: Sequence[Object],
        superfluous: Sequence[Object] = (),
        *,
        now: float,
        resync: float,
        unwatched: bool,
        count: Callable[[str, str], None] = lambda _kind, _reason: None,
    ) -> Mapping[str, Any] | None:
        """Send what has to be sent: all of it every ``resync`` seconds, and what no watch reports with ``unwatched``.

        ``count`` is called with the kind of each that is sent, and why it is.

        With all of it, it also removes what is ``superfluous``.

        Returns the Deployment as it was when sent, until the cache has it, else None. Raises :class:`ClusterError` at
        the first refusal; for a :class:`ForeignObject` it names all of them, so that they can be removed at once.
        """
        sent_now: Mapping[str, Any] | None = None
        rest = iter(children)
        every = now - self.all_sent_at >= spread_period(resync, key)
        if every:
            self.removals.clear()
        for child in rest:
            kind = child["kind"]
            reason = self._find_reason(child, cluster.get_child(key, kind), now)
            if reason is None and (every or (unwatched and kind not in WATCHED)):
                reason = "Resync"
            if reason is not None:
                count(kind, reason)
                try:
                    there = await cluster.apply(child)
                except ForeignObject as foreign:
                    raise await _all_foreign(cluster, foreign, rest) from foreign
                if there is not None:
                    there = await self._remove_foreign_fields(cluster, key, child, there)
                sent_now = there if kind == "Deployment" else sent_now
                self.sent[kind] = _Sent(child, now, 0 if there is None else _version_of(there), there=sent_now)
        if every:
            for child in superfluous:
                await self._remove_child(cluster, key, child)
            self.all_sent_at = now
        return sent_now if sent_now is not None else self._find_unseen_deployment(cluster, key)

    def _find_unseen_deployment(self, cluster: Cluster, key: Key) -> Mapping[str, Any] | None:
        """The Deployment that was sent at an earlier look, while the cache has an older one."""
        sent = self.sent.get("Deployment")
        if sent is None:
            return None
        cached = cluster.get_child(key, "Deployment")
        if cached is not None and _version_of(cached) >= sent.version:
            sent.there = None
        return sent.there

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

    async def _remove_foreign_fields(
        self, cluster: Cluster, key: Key, child: Object, there: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Remove what other managers set in ``there``, which was just applied; returns the child as it is then."""
        kind, now = child["kind"], there
        found = describe_foreign_fields(there)
        if found and self.removals[kind] < MOST_REMOVALS and await cluster.adopt_foreign_fields(there):
            self.removals[kind] += 1
            applied = await cluster.apply(child)
            if applied is None:
                return None
            now = applied
            await cluster.record_event(key, Event("Warning", "ForeignFieldsRemoved", f"removed from {found}"))
        self.foreign[kind] = describe_foreign_fields(now)
        return now

    def _find_reason(self, child: Object, there: Mapping[str, Any] | None, now: float) -> str | None:
        """Why ``child`` must be sent, in a word; None where it need not be."""
        sent = self.sent.get(child["kind"])
        if sent is None:
            return "First"
        if sent.child != child:
            return "Changed"
        if self.foreign.get(child["kind"]) and self.removals[child["kind"]] < MOST_REMOVALS:
            return "ForeignFields"  # another writer was there first
        if child["kind"] not in WATCHED:
            return None
        if there is None:
            return "Gone" if sent.seen or now - sent.at >= UNSEEN_SECONDS else None
        sent.seen = True
        return "Drifted" if _version_of(there) > sent.version else None


def spread_period(seconds: float, key: Key) -> float:
    """A period of 80 to 100 % of ``seconds``, always the same for one ``key``: not all fleets are due at once."""
    return seconds * (1 - 0.2 * zlib.crc32(str(key).encode()) / 2**32)


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
