"""Take and let go of buckets of fleets, while this process leads its shard."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from paternoster_operator.cluster.buckets import NUM_BUCKETS, Shard, assign_buckets, find_bucket
from paternoster_operator.cluster.lease import LEASE_SECONDS, shard_lease
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.shards.claims import FIELD, BucketClaims

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 2.0
"""Between two reads of the record; with a request less than a Lease lasts, so that a deleted record is seen in time."""
BUCKETS_AT_ONCE = 8
"""Buckets that a shard lets go of together: their fleets wait until all objects of them have their labels."""


class ClaimsObject(Protocol):
    """Record of shards, and the Leases of their holders; all methods raise :class:`ClusterError`."""

    async def read_config_map(self, key: Key) -> tuple[Mapping[str, str], str] | None: ...

    async def write_config_map(self, key: Key, data: Mapping[str, str], version: str | None) -> str | None: ...

    async def read_lease(self, key: Key) -> tuple[str, str]:
        """Holder and time of the last renewal, both empty where there is none."""
        ...

    def get(self, key: Key) -> Mapping[str, Any] | None: ...

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None: ...

    async def has_children(self, key: Key) -> bool:
        """Whether all children that the fleet has are seen."""
        ...


class FleetOwnership:
    """The fleets that this process reconciles: those of the buckets that its shard has, while it holds its Lease.

    A single shard in a cluster that never had several has no record, and reconciles all.
    """

    def __init__(
        self,
        shard: Shard,
        record: ClaimsObject,
        lease: Key,
        find_term: Callable[[], int | None],
        gain: Callable[[Collection[int]], object],
        let_go: Callable[[Collection[int]], Awaitable[object]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``lease``: the installation's.

        ``find_term`` gives another number after each gap in which this process may not have had its shard's Lease, and
        None while it has not. ``gain`` is called with buckets to reconcile from now on. ``let_go`` returns once nothing
        is done any more for buckets, and the next holder will see all of their objects.
        """
        self.shard = shard
        self._record = record
        self._lease = lease
        self._config_map = Key(lease.namespace, f"{lease.name}-shards")
        self._find_term = find_term
        self._gain = gain
        self._let_go = let_go
        self._clock = clock
        self._wall = wall
        self._term: int | None = None
        """Term in which the record was read."""
        self._has_all = False
        self._tokens: dict[int, int] = {}
        """Tokens of the buckets that it reconciles."""
        self._whole: dict[Key, int] = {}
        """Tokens of the fleets whose children it has seen."""
        self._held: Collection[int] = ()
        """Buckets that the record had for its shard when it was last read."""
        self._leaving: set[int] = set()
        """Buckets of these for which it does nothing any more."""
        self._begun = False
        """Whether the buckets that it has got a token of this leadership."""
        self._made_at = float("-inf")
        """Time at which it made the record."""
        self._seen: dict[int, tuple[tuple[str, str], float]] = {}
        """The Lease of another shard, and since when it is as it is, by the shard's number."""

    def owns(self, key: Key) -> bool:
        """Whether this process may change the fleet now."""
        return (self._has_all or find_bucket(key) in self._tokens) and self._is_current()

    def may_label(self, key: Key) -> bool:
        """Whether the shard that the fleet's label is to bring it to may see it now: not before this one lets go."""
        bucket = find_bucket(key)
        return self._begun and self._is_current() and (bucket not in self._held or bucket in self.shard.buckets)

    def find_shard(self, key: Key) -> int:
        """Number of the shard that is to have the fleet; this one's own where another process leads that."""
        return assign_buckets(self.shard.count)[find_bucket(key)]

    def find_token(self, key: Key) -> int | None:
        """Token that the fleet's status is to have; None in a cluster that never had several shards."""
        return self._tokens.get(find_bucket(key))

    def sees_all(self, key: Key) -> bool:
        """Whether the fleet is gone where no watch of this shard has it."""
        return self._has_all or (find_bucket(key) in self._tokens and find_bucket(key) in self.shard.buckets)

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None:
        """The fleet as the API server has it, of which this shard's watches have a part. Raises :class:`ClusterError`.

        None where it is not there, and for a single shard, whose watches have all.
        """
        return None if self._has_all else await self._record.read_fleet(key)

    async def sees_children(self, key: Key) -> bool:
        """Whether the fleet can be reconciled: of one that came from another shard, children may still be on their way.

        Raises :class:`ClusterError`.
        """
        token = self.find_token(key)
        if self._record.get(key) is None or token is None or self.shard.count == 1:
            self._whole.pop(key, None)
            return True
        if self._whole.get(key) != token and await self._record.has_children(key):
            self._whole[key] = token
        return self._whole.get(key) == token

    def clear(self) -> None:
        """Another process leads the shard."""
        self._has_all = self._begun = False
        self._term, self._tokens, self._held, self._made_at = None, {}, (), float("-inf")
        self._leaving.clear()
        self._whole.clear()
        self._seen.clear()

    async def follow(self) -> None:
        """Follow the record until cancelled; only while this process leads its shard."""
        fault = ""
        while True:
            try:
                if not (self._has_all and self._is_current()):
                    await self._follow_once()
                fault = ""
            except (ClusterError, ValueError) as error:
                if str(error) != fault:
                    log.warning("shard %s: %s", self.shard, error)
                fault = str(error)
            await asyncio.sleep(FOLLOW_SECONDS)

    def _is_current(self) -> bool:
        return self._term is not None and self._find_term() == self._term

    async def _follow_once(self) -> None:
        term = self._find_term()
        if term != self._term:
            self.clear()  # others may have acted in the gap
            self._term = term
        found = await self._read_record()
        if not self._is_current():
            return
        if found is None:
            await self._begin_record()
            return
        claims, version = BucketClaims.decode(found[0]), found[1]
        wanted, number = self.shard.buckets, self.shard.number
        dead = {shard for shard in claims.list_holders(wanted) - {number} if await self._is_dead(shard)}
        updated = claims.take_free(number, wanted, dead, again=not self._begun)
        if updated != claims:
            if not await self._write(updated, version):
                return
            claims = updated
        self._begun, held = True, claims.list_held(number)
        self._held = held.keys()
        if self._clock() - self._made_at < LEASE_SECONDS:
            return  # a shard that had a bucket in a record that was deleted may not have seen that yet
        self._reconcile_only({bucket: token for bucket, token in held.items() if bucket not in self._leaving})
        surplus = sorted(held.keys() - wanted)
        for start in range(0, len(surplus), BUCKETS_AT_ONCE):
            await self._give_away(surplus[start : start + BUCKETS_AT_ONCE])

    async def _read_record(self) -> tuple[Mapping[str, str], str] | None:
        """The record and its version; a single shard that may not read it has never had others."""
        try:
            return await self._record.read_config_map(self._config_map)
        except ClusterError as error:
            if error.retriable or self.shard.count > 1:
                raise
            log.info("shard %s: %s; so it reconciles all fleets", self.shard, error)
            return None

    async def _begin_record(self) -> None:
        self._reconcile_only({})
        self._leaving.clear()
        if self.shard.count == 1 and not self._begun:
            self._has_all = True
            self._gain(self.shard.buckets)
        elif self.shard.number == 0 and await self._write(BucketClaims.first(0, int(self._wall())), None):
            self._made_at, self._begun, self._held = self._clock(), True, frozenset(range(NUM_BUCKETS))

    def _reconcile_only(self, tokens: dict[int, int]) -> None:
        new = {bucket for bucket, token in tokens.items() if self._tokens.get(bucket) != token}
        if lost := self._tokens.keys() - tokens.keys():
            log.warning("shard %s has %d buckets no more: the record names other shards", self.shard, len(lost))
        self._tokens = tokens
        if new:
            log.info("shard %s reconciles %d buckets, %d of them from now on", self.shard, len(tokens), len(new))
            self._gain(new)

    async def _give_away(self, buckets: Collection[int]) -> None:
        """Stop, and then let the next shards have them."""
        self._leaving |= {*buckets}
        for bucket in buckets:
            self._tokens.pop(bucket, None)
        await self._let_go(buckets)
        while self._is_current():
            found = await self._record.read_config_map(self._config_map)
            if found is None:
                return
            claims = BucketClaims.decode(found[0])
            released = claims.release(self.shard.number, buckets)
            if released == claims or await self._write(released, found[1]):
                self._leaving -= {*buckets}
                return

    async def _write(self, claims: BucketClaims, version: str | None) -> bool:
        """False where another shard came first."""
        data = {FIELD: claims.encode()}
        return self._is_current() and await self._record.write_config_map(self._config_map, data, version) is not None

    async def _is_dead(self, shard: int) -> bool:
        """Whether the shard's Lease has no holder, or was not renewed for as long as it lasts, by this clock."""
        lease = await self._record.read_lease(shard_lease(self._lease, shard))
        now = self._clock()
        seen, since = self._seen.get(shard, (None, now))
        if seen != lease:
            self._seen[shard], since = (lease, now), now
        holder, renewed = lease
        return (bool(renewed) and not holder) or now - since > LEASE_SECONDS
