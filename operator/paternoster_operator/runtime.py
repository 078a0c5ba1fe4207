"""The operator at work over any cluster: queue, reconciler and what it publishes."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paternoster_contract.routing import RoutingTable
from paternoster_contract.supervise import supervise_task
from paternoster_operator.activation import wake_fleets
from paternoster_operator.cluster.buckets import find_bucket
from paternoster_operator.cluster.port import Cluster, ClusterError, FleetHandedOver, Key, NamespaceEnding
from paternoster_operator.cluster.traffic import ApiTraffic
from paternoster_operator.fleet import Fleet
from paternoster_operator.installation import Installations
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.keys.key_secrets import KeySecrets
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.names.directory import Directory
from paternoster_operator.names.record_store import RecordObject, RecordStore
from paternoster_operator.names.served_names import NAME_TAKEN
from paternoster_operator.queue import LONGEST_BACKOFF_SECONDS, WorkQueue
from paternoster_operator.reconcile import Reconciler
from paternoster_operator.report.conditions import find_condition
from paternoster_operator.routes.shard_tables import ShardTables
from paternoster_operator.routes.table import RoutesTable
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings
from paternoster_operator.shards.ownership import FleetOwnership

log = logging.getLogger(__name__)

CHILD_SECONDS = 0.3
"""How long a child's change may wait for others."""
ROOT_KEYS_RETRY_SECONDS = 2.0
ROUTES_SECONDS = 10.0
"""Between two looks at what has no room in the routing table."""


class Operator:
    """Give it a cluster, tell it which keys changed, and it keeps them reconciled."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings | None = None,
        name_record: RecordObject | None = None,
        traffic: ApiTraffic | None = None,
        ownership: FleetOwnership | None = None,
        shard_urls: Sequence[str] = (),
    ) -> None:
        """``name_record``: where the record of served names is; without it names live as long as this process.

        ``traffic`` is exported with the operator's metrics: what ``cluster`` counts. ``ownership`` is None where this
        operator reconciles every fleet. ``shard_urls``: base URLs of the operators of the other shards.
        """
        self.settings = settings or Settings()
        self.metrics = OperatorMetrics(traffic)
        self._cluster = cluster
        self._acting = False
        self._scraper = Scraper(
            timeout_seconds=self.settings.scrape_timeout_seconds,
            gateway_url=self.settings.gateway_url,
            observe=self.metrics.observe_scrape,
        )
        self._ownership = ownership
        owns, sees_all, read_fleet, find_token = (
            (lambda _: True, lambda _: True, None, lambda _: None)
            if ownership is None
            else (ownership.owns, ownership.sees_all, ownership.read_fleet, ownership.find_token)
        )
        self._owns = owns
        self._installations = Installations(cluster, self.settings.installation, find_token=find_token)
        store = RecordStore(name_record, self.metrics.count_name_record_fault, writers=1 + len(shard_urls))
        self._directory = Directory(
            cluster, self.settings.names, self._installations.other_owner, store=store,
            owns=owns, sees_all=sees_all, read_fleet=read_fleet,
        )  # fmt: skip
        self.keys = FleetKeys(KeySecrets(cluster), self.settings)
        read_copy = None if name_record is None else name_record.read_published_routes
        self.shard_tables = ShardTables(shard_urls, self.keys.operator_key, read_copy)
        self.metrics.shards_unread.set_function(lambda: self.shard_tables.num_unread)
        self.routes = RoutesTable(cluster, self._directory, self.keys, self.shard_tables)
        metrics, routes = self.metrics, self.routes
        metrics.name_record_read.set_function(lambda: self._directory.is_read)
        metrics.routes_rows.set_function(lambda: len(routes.published.rows))
        metrics.routes_bytes.set_function(lambda: routes.published.size)
        metrics.routes_unread.set_function(lambda: len(routes.published.unread))
        metrics.routes_left_out.set_function(lambda: len(routes.published.left_out))
        self._reconciler = Reconciler(
            cluster, self._scraper, self.settings, self.metrics, self._directory, self.keys,
            routes_share=lambda key: self.routes.published.left_out.get(key), may_act=owns,
        )  # fmt: skip
        self._queue: WorkQueue[Key] = WorkQueue(
            self._reconcile_once, workers=self.settings.workers, group=lambda key: key.namespace,
            observe=lambda kind, seconds: self.metrics.traffic.observe_wait(
                kind, seconds, self.settings.look_seconds
            ),
        )  # fmt: skip
        self.metrics.traffic.follow_queue(self._queue)
        self._waking: asyncio.Task[None] | None = None
        self.last_look = time.monotonic()
        """When a reconcile last ended, on the monotonic clock."""
        self.synced = True
        """False while the cluster's cache is not yet whole: what it lacks may still be there."""

    def enqueue_key(self, key: Key) -> None:
        """Something about ``key`` changed."""
        self._queue.add(key)

    def enqueue_namespace(self, namespace: str | None) -> None:
        """The cluster can be read again, there or everywhere: its fleets do not wait for the end of a back-off."""
        for key in self._cluster.list():
            if namespace in (None, key.namespace):
                self._queue.add(key)

    def enqueue_soon(self, key: Key) -> None:
        """A child of ``key`` changed: others of it will in the same moment, and one look sees them all."""
        self._queue.add_after(key, CHILD_SECONDS)

    def enqueue_if_edited(self, key: Key, generation: int) -> None:
        """``key`` was written: by somebody, or by the operator's own words in its status."""
        fleet = self.find_fleet(key)
        if fleet is None:
            self._queue.add(key)
        elif fleet.resource.metadata.generation != generation:
            self._queue.add(key)
            self.enqueue_unnamed(key.namespace)

    def enqueue_unnamed(self, namespace: str) -> None:
        """A fleet of ``namespace`` was deleted or edited: those that wait for a served name may have it now."""
        self._directory.expire_assignment()
        for key, fleet in self._reconciler.fleets.items():
            if key.namespace == namespace:
                stalled = find_condition(fleet.resource.status, "Stalled") or {}
                if stalled.get("reason") == NAME_TAKEN:
                    self._queue.add(key)

    def enqueue_buckets(self, buckets: Collection[int]) -> None:
        """The fleets of ``buckets`` are this operator's from now on."""
        if self.synced:
            for key in self._cluster.list():
                if find_bucket(key) in buckets:
                    self._queue.add(key)

    def find_other_owner(self, document: Mapping[str, Any]) -> str | None:
        """The other installation that reconciles an LLMDeployment; None where there is none."""
        return self._installations.other_owner(document)

    async def stop_reconciling(self, buckets: Collection[int]) -> None:
        """Return once nothing is done for the fleets of ``buckets`` any more, which are not this operator's."""
        await self._queue.wait_until_done(lambda key: find_bucket(key) in buckets)
        for key in [key for key in self._reconciler.fleets if find_bucket(key) in buckets]:
            self._reconciler.forget_key(key)

    @property
    def has_own_routes(self) -> bool:
        """Whether this shard's rows of the routing table are whole: its fleets are read, and which names each has."""
        return self.synced and self._directory.is_read

    @property
    def has_routes(self) -> bool:
        """Whether it is known which rows all shards have, or had last."""
        return self.has_own_routes and self.shard_tables.are_read

    async def follow_routes(self) -> None:
        """Find which fleets have no room in the routing table, until cancelled: no gateway may ask this operator."""
        while True:
            if self.has_routes:
                await self.routes.build()
            await asyncio.sleep(ROUTES_SECONDS)

    async def follow_names(self) -> None:
        """Read the record of served names until cancelled, and write it while this operator acts."""
        await self._directory.follow_record(lambda: self._acting, lambda: self.synced)

    async def measure_event_loop(self, period_seconds: float = 0.25) -> None:
        """Export, until cancelled, how much later than due the event loop wakes this task."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + period_seconds
            await asyncio.sleep(period_seconds)
            self.metrics.event_loop_silence.observe(max(clock() - due, 0.0))

    async def make_root_keys(self) -> None:
        """Until they are there: gateways cannot start without theirs, and ask for nothing before."""
        while True:
            try:
                await self.keys.read_roots()
                return
            except ClusterError as error:
                log.warning("%s; again in %g s", error, ROOT_KEYS_RETRY_SECONDS)
            await asyncio.sleep(ROOT_KEYS_RETRY_SECONDS)

    def start(self) -> None:
        """Begin to act, on what is known to be there; needs a running event loop."""
        self._reconciler.clear()
        self._installations.clear()
        self._acting = True
        self.metrics.leading.set(1)
        self._queue.start()
        self._waking = supervise_task(
            lambda: wake_fleets(self._reconciler.fleets, self._scraper.held_by_fleet, self.enqueue_key), "wake"
        )
        # Before the cache is whole, a pod that is not in it may still be there. The events that fill it enqueue, too.
        if self.synced:
            for key in self._cluster.list():
                self.enqueue_key(key)

    async def pause(self) -> None:
        """Act no more, and still tell where requests go."""
        self._acting = False
        self.metrics.leading.set(0)
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)
            self._waking = None
        await self._queue.stop()
        self.metrics.forget_all()

    async def stop(self) -> None:
        """Stop looking; what runs in the cluster goes on."""
        await self.pause()
        await self.shard_tables.close()
        await self._scraper.close()

    @property
    def alive(self) -> bool:
        return not self._acting or (self._queue.alive and self._waking is not None and not self._waking.done())

    def find_fleet(self, key: Key) -> Fleet | None:
        """What is known of one LLMDeployment, for a view."""
        return self._reconciler.fleets.get(key)

    async def routing_table(self) -> RoutingTable:
        """Where requests go now; see :meth:`RoutesTable.build`."""
        return (await self.routes.build()).table

    async def _reconcile_once(self, key: Key) -> float | None:
        try:
            if not self._owns(key):
                if key in self._reconciler.fleets:
                    self._reconciler.forget_key(key)
                return None
            if self._ownership is not None and not await self._ownership.sees_children(key):
                return CHILD_SECONDS
            again = await self._installations.wait_to_own(key)
            return again if again is not None else await self._reconciler.reconcile(key)
        except FleetHandedOver:
            shard = 0 if self._ownership is None else self._ownership.find_shard(key)
            log.info("%s is handed over to shard %d: this look at it ends", key, shard)
            self._reconciler.forget_key(key)
            return None
        except NamespaceEnding as ending:
            log.debug("%s: %s", key, ending)
            return LONGEST_BACKOFF_SECONDS  # a finalizer may hold the namespace for long
        finally:
            self.last_look = time.monotonic()
