"""Decide which installation reconciles an LLMDeployment that several installations watch.

The name of an installation is that of its operators' Lease, ``namespace/name``. Before an installation reconciles a
fleet it writes its name into ``status.installation``, provided that the object has not changed. From then on every
other installation leaves the fleet alone, posts an event, and marks the fleet as watched by it, so that the owner
reports that as well (:mod:`~paternoster_operator.report.other_installation`). The owner renews its claim with each
status, which it writes at least every :data:`~paternoster_operator.report.status.LOAD_REFRESH_SECONDS`. A claim without
renewal for :data:`TAKEOVER_SECONDS` is void; the others measure that on their own clocks, as candidates for a Lease do.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from paternoster_operator.cluster.port import Cluster, Event, Key
from paternoster_operator.report.other_installation import RENEW_SECONDS, build_mark, mark_age

log = logging.getLogger(__name__)

TAKEOVER_SECONDS = 120.0
"""Twice the time after which an owner has certainly written a status."""
RECHECK_SECONDS = 10.0
"""Time between two checks of a fleet of another installation."""
CLAIM_SECONDS = 1.0
"""Time until the next check of a claim that the cache does not show yet; the watch's event usually comes sooner."""
REASON = "OwnedByAnotherInstallation"


@dataclass(slots=True)
class _Claim:
    """A claim of another installation, and when it was last seen to change."""

    installation: str
    renewal: Any
    seen_at: float


class Installations:
    """The claims on the LLMDeployments of ``cluster``, as the installation ``name`` sees them.

    Without a name, on this machine's own cluster, every fleet is this installation's.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str | None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        find_token: Callable[[Key], int | None] = lambda _: None,
    ) -> None:
        """``find_token``: that of this operator for a fleet, where several operators share the installation's."""
        self._cluster = cluster
        self._name = name
        self._find_token = find_token
        self._clock = clock
        self._wall = wall
        self._claims: dict[str, _Claim] = {}
        """Claims of others, by the uid of the LLMDeployment."""
        self._reported: dict[str, str] = {}
        """Installations that were reported as the owner, by the uid of the LLMDeployment."""
        self._marked: dict[str, float] = {}
        """When this installation last marked a fleet, on ``clock``, by the uid of the LLMDeployment."""

    def other_owner(self, document: Mapping[str, Any]) -> str | None:
        """Return the other installation that reconciles ``document``; None for this one or where a claim is void."""
        uid, status = document["metadata"]["uid"], document.get("status", {})
        installation = status.get("installation")
        if self._name is None or installation in (None, self._name):
            self._claims.pop(uid, None)
            self._reported.pop(uid, None)
            self._marked.pop(uid, None)
            return None
        renewal, now = status.get("load", {}).get("sampleTime"), self._clock()
        claim = self._claims.get(uid)
        if claim is None or (claim.installation, claim.renewal) != (installation, renewal):
            claim = self._claims[uid] = _Claim(installation, renewal, now)
        return None if now - claim.seen_at > TAKEOVER_SECONDS else claim.installation

    async def wait_to_own(self, key: Key) -> float | None:
        """Claim the fleet; returns None once the claim is in the cache, else the seconds until the next try.

        Raises :class:`~paternoster_operator.cluster.port.ClusterError` for a claim that cannot be written.
        """
        document = self._cluster.get(key)
        if self._name is None or document is None or "deletionTimestamp" in document["metadata"]:
            return None
        other = self.other_owner(document)
        if other is not None:
            await self._report_conflict(key, document["metadata"]["uid"], other)
            await self._mark_watched(key, document)
            return RECHECK_SECONDS
        status, token = document.get("status", {}), self._find_token(key)
        if status.get("installation") == self._name:
            return None if token is None else await self._set_token(key, status.get("shardToken", 0), token)
        if await self._cluster.amend_status(key, {"installation": self._name}):
            log.info("%s: reconciled by the installation %s from now on", key, self._name)
        return CLAIM_SECONDS

    async def _set_token(self, key: Key, there: int, token: int) -> float | None:
        """Write ``token`` into the status before anything else; with a greater one ``there`` the fleet is another's."""
        if there == token:
            return None
        if there > token:
            log.warning("%s: its status has the token %d, and this shard's is %d: left alone", key, there, token)
            return RECHECK_SECONDS
        return None if await self._cluster.amend_status(key, {"shardToken": token}) else CLAIM_SECONDS

    def clear(self) -> None:
        """Report fleets of other installations again: another replica may have led meanwhile."""
        self._reported.clear()

    async def _mark_watched(self, key: Key, document: Mapping[str, Any]) -> None:
        """Mark the fleet as watched by this installation, unless there is a mark that need not be renewed yet.

        Of three installations, so, one of the two that do not reconcile it is named. An owner of an earlier release
        removes the mark at once: it is written once in :data:`RENEW_SECONDS` all the same.
        """
        assert self._name is not None
        uid, clock = document["metadata"]["uid"], self._clock()
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        age = mark_age(document.get("status", {}), now)
        if (age is not None and abs(age) <= RENEW_SECONDS) or clock - self._marked.get(uid, -inf) <= RENEW_SECONDS:
            return
        if await self._cluster.amend_status(key, build_mark(self._name, now)):
            self._marked[uid] = clock

    async def _report_conflict(self, key: Key, uid: str, other: str) -> None:
        if self._reported.get(uid) == other:
            return
        self._reported[uid] = other
        message = (
            f"the installation {self._name} watches this LLMDeployment, too, and leaves it alone: {other} reconciles it"
            " (status.installation). Let each watch namespaces of its own (watchNamespaces), or uninstall one"
        )
        log.warning("%s: %s", key, message)
        await self._cluster.record_event(key, Event("Warning", REASON, message))
