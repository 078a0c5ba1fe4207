"""The routing table, row by row: a row is built anew when what it is made of changed, and its fault stays its own."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_contract.routing import Replica
from paternoster_contract.routing_rows import MOST_BYTES
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Cluster, ClusterError, Key, check_listed
from paternoster_operator.keys.client_keys import ClientKeys
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.names.directory import Directory, split_names
from paternoster_operator.observed import Observed
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow
from paternoster_operator.routes.row import build_route
from paternoster_operator.routes.shard_tables import ShardTables

log = logging.getLogger(__name__)

ROWS_PER_TURN = 64
"""Built in one turn of the event loop, which has other fleets' work and probes to do: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class _Built:
    """A row, and what it was built from: the same resource, pods and keys make the same row."""

    row: PublishedRow
    names: Sequence[str]
    """All that the fleet has, those of its adapters included."""
    resource: LLMDeployment
    clients: ClientKeys
    pods: Sequence[Mapping[str, Any]]

    def is_made_of(
        self,
        names: Sequence[str],
        resource: LLMDeployment,
        clients: ClientKeys,
        pods: Sequence[Mapping[str, Any]],
    ) -> bool:
        return (
            self.names == names
            and self.resource is resource
            and self.clients.digests == clients.digests
            and self.clients.identities == clients.identities
            and len(self.pods) == len(pods)
            and all(map(lambda a, b: a is b, self.pods, pods))
        )


class RoutesTable:
    """Builds the table from the cluster's cache: a pod that is being deleted gets nothing new at once."""

    def __init__(
        self, cluster: Cluster, directory: Directory, keys: FleetKeys, others: ShardTables | None = None
    ) -> None:
        """``others``: the rows of fleets that other operators watch."""
        self._others = others or ShardTables()
        self._cluster = cluster
        self._directory = directory
        self._keys = keys
        self._built: dict[Key, _Built] = {}
        self._faults: dict[Key, str] = {}
        self._building: asyncio.Future[PublishedTable] | None = None
        self.published = PublishedTable()
        """The table that was built last."""

    async def build(self) -> PublishedTable:
        """The table now; what is wrong with one fleet leaves out its row alone."""
        self.published = self._others.merge(await self.build_own(), self._directory.recorded).fit_rows(MOST_BYTES)
        return self.published

    async def build_for_shards(self) -> PublishedTable:
        """What the operators of other shards read."""
        return (await self.build_own()).for_shards(MOST_BYTES)

    async def build_own(self) -> PublishedTable:
        """The rows of the fleets that this operator watches. Calls at the same time share one."""
        building = self._building
        if building is None:
            building = self._building = asyncio.ensure_future(self._build_once())
        return await asyncio.shield(building)

    async def _build_once(self) -> PublishedTable:
        try:
            return await self._build_rows()
        finally:
            self._building = None

    async def _build_rows(self) -> PublishedTable:
        built: dict[Key, _Built] = {}
        unread: list[UnreadRow] = []
        for number, (names, resource) in enumerate(await self._directory.list_served(), 1):
            key = Key(resource.metadata.namespace, resource.metadata.name)
            try:
                if (row := await self._build_row(key, names, resource)) is not None:
                    built[key] = row
                self._faults.pop(key, None)
            except Exception as error:
                unread.append(UnreadRow(names, key, resource.metadata.creation_timestamp or ""))
                self._log_once(key, error)
            if number % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._built = built
        return PublishedTable([each.row for each in built.values()], unread)

    async def _build_row(self, key: Key, names: Sequence[str], resource: LLMDeployment) -> _Built | None:
        """None for a fleet that has lost all names but those of its adapters."""
        check_listed(self._cluster, key.namespace)
        clients = await self._keys.client_keys(resource)
        pods = self._cluster.list_pods(key)
        before = self._built.get(key)
        if before is not None and before.is_made_of(names, resource, clients, pods):
            return before
        served, adapters = split_names(resource, names)
        if not served:
            return None
        name, *aliases = served
        route = build_route(resource, clients.digests, clients.identities, aliases, adapters)
        observed = Observed.from_cluster(None, pods)
        # Names of pods are their namespace's own.
        route.replicas += [
            Replica(
                name=f"{key.namespace}/{pod.name}",
                url=pod.url,
                ready=pod.serving,
                draining=not pod.serving,
                upstream_model=pod.upstream_model,
                unserved_names=pod.find_unserved(served, [adapter.name for adapter in adapters]),
            )
            for pod in (*observed.serving, *observed.draining)
            if pod.url is not None and not pod.has_ended
        ]
        row = PublishedRow(name, key, route, resource.metadata.creation_timestamp or "")
        return _Built(row, names, resource, clients, tuple(pods))

    def _log_once(self, key: Key, error: Exception) -> None:
        fault = f"{type(error).__name__}: {error}"
        if self._faults.get(key) != fault:
            log.warning(
                "%s: its row of the routing table cannot be built, so gateways keep the last one: %s", key, error,
                exc_info=None if isinstance(error, ClusterError) else error,
            )  # fmt: skip
        self._faults[key] = fault
