"""Every LLMDeployment as it was last usable, and which served name each has."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_contract.limits import MAX_SERVED_NAMES
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.stored import with_successors
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Cluster, ClusterError, Key
from paternoster_operator.names.record import Assignment, Entry, NameRecord, update_record
from paternoster_operator.names.record_store import RecordStore
from paternoster_operator.names.served_names import Claim, explain_refusal, waits_for_own_namespace
from paternoster_operator.settings import Names

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 2.0
"""Between two reads of the record, which an administrator may edit, and of one that stands by the other operator."""
FRESH_SECONDS = 1.0
"""Who has which name is found anew after this long, where no caller needs it at once: every fleet is read."""

FLEETS_PER_TURN = 256
"""Compared with what was parsed of them in one turn of the event loop."""
FLEETS_READ_AT_ONCE = 32
"""Fleets that are read from the cluster at the same time."""
REASSIGN_SECONDS = 60
"""After which names are assigned anew, although nothing has changed."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A manifest as it was parsed last."""

    version: str | None = None
    """That was parsed."""
    resource: LLMDeployment | None = None
    """The resource as it was last usable."""
    errors: tuple[str, ...] = ()
    """Faults for which this version cannot be used."""


class Directory:
    """Reads the cluster's cache; the same on every operator that sees the same."""

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        other_owner: Callable[[Mapping[str, Any]], str | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        store: RecordStore | None = None,
        wall: Callable[[], float] = time.time,
        owns: Callable[[Key], bool] = lambda _: True,
        sees_all: Callable[[Key], bool] = lambda _: True,
        read_fleet: Callable[[Key], Awaitable[Mapping[str, Any] | None]] | None = None,
    ) -> None:
        """Index the fleets of ``cluster`` by their served names.

        A fleet that this operator does not own has the names that are recorded for it. ``sees_all``: whether a fleet
        that is not there is gone, and not another operator's; ``read_fleet`` gives it as the cluster has it now, for
        watches of a part of the fleets, which one may come to later. It raises :class:`ClusterError`.

        ``other_owner``: the other installation that reconciles a document; :meth:`list_served` leaves its fleets out.
        ``store``: where the record of names is; without one it lives as long as this process.
        """
        self._owns = owns
        self._sees_all = sees_all
        self._read_fleet = read_fleet
        self._gone: set[Key] = set()
        """Fleets that the record has as being there, and the cluster has not."""
        self._gone_read_at = float("-inf")
        """When it read from the cluster those fleets that no watch has."""
        self._store = store or RecordStore(None)
        self._wall = wall
        self._cluster = cluster
        self._names = names
        self._other_owner = other_owner
        self._clock = clock
        self._parsed: dict[Key, _Parsed] = {}
        self._assignment = Assignment()
        self._claims: dict[Key, Claim] = {}
        self._found_from: tuple[NameRecord, set[Key]] = NameRecord(), set()
        """What ``_assignment`` was found from, with the claims: the record, and fleets that cannot be used."""
        self._assigned_at = 0
        """Unix seconds."""
        self._found_at = float("-inf")

    def read(self, key: Key, document: Mapping[str, Any]) -> LLMDeployment:
        """The typed resource, its served name as this installation makes it; raises :class:`InvalidManifest`."""
        last = self._parse_document(key, document)
        if last.errors or last.resource is None:
            raise InvalidManifest([*last.errors])
        return last.resource

    def forget_key(self, key: Key) -> None:
        """It is gone."""
        self._parsed.pop(key, None)

    def get_resource(self, key: Key) -> LLMDeployment | None:
        """Resource in its last usable form: a broken edit takes no route away."""
        document = self._cluster.get(key)
        if document is None:
            self._parsed.pop(key, None)
            return None
        return self._parse_document(key, document).resource

    def _parse_document(self, key: Key, document: Mapping[str, Any]) -> _Parsed:
        """Each version of a manifest is parsed once."""
        version, last = document["metadata"].get("resourceVersion"), self._parsed.get(key, _Parsed())
        if key not in self._parsed or last.version != version or version is None:
            try:
                document, removed = with_successors(document)
                named = document if self._names is Names.GLOBAL else _with_name(document)
                resource = parse_resource(named, parsed=last.resource)
                last = _Parsed(version, resource.model_copy(update={"removed_fields": removed}))
            except InvalidManifest as invalid:
                last = _Parsed(version, last.resource, tuple(invalid.errors))
            self._parsed[key] = last
        return last

    @property
    def is_read(self) -> bool:
        """Whether it is known which fleet has which names."""
        return self._store.is_read

    @property
    def recorded(self) -> Mapping[Key, Entry]:
        """The record of served names, also of fleets that no watch of this operator has."""
        return self._store.record.fleets

    async def list_served(self) -> list[tuple[tuple[str, ...], LLMDeployment]]:
        """The fleets that have served names, with these, as of now."""
        await self._read_edited()
        resources = self._assign_names()
        served = [key for key in self._assignment.owned.names if key in resources]
        return [(has, resources[key]) for key in served if (has := self._list_recorded(key))]

    async def _read_edited(self) -> None:
        """Parse what has changed, one fleet in a turn of the event loop: of ten thousand, that takes a minute.

        Then find which fleets are gone.
        """
        for number, key in enumerate(self._cluster.list()):
            before = self._parsed.get(key)
            self.get_resource(key)
            if self._parsed.get(key) is not before or number % FLEETS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self._find_gone()

    async def _find_gone(self) -> None:
        """Find which recorded fleets are gone: one that no watch has may be on its way, or its label be edited."""
        there = (key for key, entry in self._store.record.fleets.items() if entry.gone_since is None)
        absent = {key for key in there if self._is_deleting(key)}
        self._gone &= absent
        unknown = [key for key in absent - self._gone if self._sees_all(key)]
        if self._read_fleet is None:
            self._gone.update(unknown)
        elif unknown and self._clock() - self._gone_read_at >= FRESH_SECONDS:
            self._gone_read_at = self._clock()
            for start in range(0, len(unknown), FLEETS_READ_AT_ONCE):
                keys = unknown[start : start + FLEETS_READ_AT_ONCE]
                gone = await asyncio.gather(*(self._is_gone(key, self._read_fleet) for key in keys))
                self._gone.update(key for key, is_gone in zip(keys, gone, strict=True) if is_gone)

    async def _is_gone(self, key: Key, read_fleet: Callable[[Key], Awaitable[Mapping[str, Any] | None]]) -> bool:
        try:
            fleet = await read_fleet(key)
        except ClusterError:
            return False
        return fleet is None or "deletionTimestamp" in fleet["metadata"] or self._other_owner(fleet) is not None

    def _assign_names(self) -> Mapping[Key, LLMDeployment]:
        """Find which fleet is to have which names; returns the fleets that want some.

        Nothing is assigned anew where no claim and no entry of the record is another one.
        """
        keys, record = [key for key in self._cluster.list() if not self._is_deleting(key)], self._store.record
        resources: dict[Key, LLMDeployment] = {}
        claims: dict[Key, Claim] = {}
        for key in keys:
            resource = self.get_resource(key)
            if resource is not None:
                is_own = self._is_own(key, resource)
                if is_own:
                    resources[key] = resource
                if self._owns(key):
                    claims[key] = self._build_claim(key, resource, record.fleets.get(key), is_own)
        claims |= self._claim_recorded(record, {*keys})
        now, found = int(self._wall()), (record, {*keys} - claims.keys())
        # Names of fleets that are gone become free by the clock alone.
        if claims != self._claims or found != self._found_from or now >= self._assigned_at + REASSIGN_SECONDS:
            self._assignment = update_record(record, [*claims.values()], keys, self._names, now)
            self._assigned_at = now
            if not self._store.is_stored:
                self._store.record = self._assignment.record
        self._claims, self._found_from, self._found_at = claims, found, self._clock()
        return resources

    def _claim_recorded(self, record: NameRecord, present: set[Key]) -> dict[Key, Claim]:
        """Claims of the fleets of other operators: of the names that they have."""
        return {
            key: Claim(key, entry.names, entry.names, "")
            for key, entry in record.fleets.items()
            if entry.gone_since is None and not (self._owns(key) if key in present else key in self._gone)
        }

    def _build_claim(self, key: Key, resource: LLMDeployment, entry: Entry | None, is_own: bool) -> Claim:
        """The names of a fleet that this operator does not serve are others'."""
        before = self._claims.get(key)
        wanted, held = resource.claimed_names if is_own else (), entry.names if entry is not None and is_own else ()
        created = resource.metadata.creation_timestamp or ""
        if before is not None and (before.wanted, before.held, before.created) == (wanted, held, created):
            return before
        return Claim(key, wanted, held, created)

    def _list_recorded(self, key: Key) -> tuple[str, ...]:
        """The names of the fleet that are recorded: until a new one is, those that it had."""
        entry, owned = self._store.record.fleets.get(key), self._assignment.owned
        has, recorded = owned.names.get(key, ()), () if entry is None else entry.names
        if set(has) <= set(recorded):
            return has
        return tuple(name for name in recorded if owned.owners.get(name, key) == key)

    async def follow_record(self, is_acting: Callable[[], bool], is_synced: Callable[[], bool]) -> None:
        """Read the record until cancelled, and write it while this operator acts."""
        fault = ""
        while True:
            try:
                if is_synced():
                    await self._follow_once(is_acting())
                    fault = ""
            except ClusterError as error:
                if str(error) != fault:
                    log.warning("the record of served names: %s", error)
                fault = str(error)
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _follow_once(self, acting: bool) -> None:
        await self._store.read(self._list_uids)
        if acting:
            await self._read_edited()
            await self._store.write(self._find_record)

    def _find_record(self) -> NameRecord:
        self._assign_names()
        return self._assignment.record

    def _list_uids(self) -> Mapping[str, Key]:
        documents = ((key, self._cluster.get(key)) for key in self._cluster.list())
        return {document["metadata"].get("uid", ""): key for key, document in documents if document is not None}

    def _is_deleting(self, key: Key) -> bool:
        """Whether only its children keep it, as after ``kubectl delete --cascade=foreground``."""
        document = self._cluster.get(key)
        return document is None or "deletionTimestamp" in document["metadata"]

    def _is_own(self, key: Key, resource: LLMDeployment) -> bool:
        document = self._cluster.get(key)
        return document is not None and self._other_owner(document) is None and not self._has_no_pods(key, resource)

    def _has_no_pods(self, key: Key, resource: LLMDeployment) -> bool:
        """Whether it only observes pods that the operator did not make."""
        return resource.spec.target_ref is not None and self._cluster.get_child(key, "Deployment") is None

    async def claim_names(self, resource: LLMDeployment) -> tuple[tuple[str, ...], tuple[str, str] | None]:
        """The names that the fleet has, recorded by now, and why they are not those it wants (reason, message).

        One that is only observed wants none. Raises :class:`ClusterError` where a new name cannot be recorded.
        """
        key = Key(resource.metadata.namespace, resource.metadata.name)
        if self._has_no_pods(key, resource):
            return (), None
        if not self._store.is_read:  # it has no route by this, and its status stays as it is
            status = resource.status
            return tuple(filter(None, (status.get("servedModel"), *(status.get("servedAliases") or ())))), None
        indexed = self._claims.get(key)
        if (
            self._clock() - self._found_at > FRESH_SECONDS
            or indexed is None
            or indexed.wanted != resource.claimed_names
        ):
            await self._read_edited()
            self._assign_names()
        if self._list_recorded(key) != self._assignment.owned.names.get(key, ()):
            await self._store.write(self._find_record)
        has, share = self._list_recorded(key), self._assignment.left_out.get(key)
        if share is not None:
            return has, (
                "NameRecordFull",
                f"the fleets of namespace {key.namespace} claim more than its share of the record of served names, "
                f"{share} bytes: use fewer or shorter names, or fewer fleets",
            )
        if has == resource.claimed_names:
            return has, None
        return has, explain_refusal(Claim.from_resource(resource, has), self._assignment.owned, self._names)

    def expire_assignment(self) -> None:
        """A fleet was deleted or edited: the next claim finds anew who has which name."""
        self._found_at = float("-inf")

    def may_start_unnamed(self, resource: LLMDeployment) -> bool:
        """Whether a fleet whose names were refused by :meth:`claim_names` starts its replicas nevertheless."""
        key = Key(resource.metadata.namespace, resource.metadata.name)
        claim, owned = Claim.from_resource(resource, self._list_recorded(key)), self._assignment.owned
        return key not in self._assignment.left_out and waits_for_own_namespace(claim, owned, self._names)


def split_names(resource: LLMDeployment, names: Sequence[str]) -> tuple[tuple[str, ...], list[ModelAdapter]]:
    """The served ones of ``names``, which the fleet has, and its adapters that are called by one of them.

    A fleet that keeps the names it had may have those of adapters that are gone: no more than served names may be.
    """
    adapters = {adapter.name: adapter for adapter in resource.spec.adapters}
    served = tuple(name for name in names if name not in adapters)[:MAX_SERVED_NAMES]
    return served, [adapter for name, adapter in adapters.items() if name in names]


def _with_name(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its namespace and own name for a served name, where it has none."""
    metadata, spec = document.get("metadata"), document.get("spec")
    model = spec.get("model") if isinstance(spec, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping) or not isinstance(model, Mapping):
        return document
    name = f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"
    return {**document, "spec": {**spec, "model": {"servedName": name, **model}}}
