"""One reconcile of one LLMDeployment: observe, plan, carry out. What is there counts, not what happened."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.carry_out.executor import Executor
from paternoster_operator.cluster.port import Cluster, FleetHandedOver, Key, NamespaceEnding, check_listed
from paternoster_operator.fleet import Fleet
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.names.directory import Directory
from paternoster_operator.observe.observer import FleetObserver
from paternoster_operator.plan.plan import make_plan
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings


class Reconciler:
    """Brings each LLMDeployment and what runs together, over a cluster's port."""

    def __init__(
        self,
        cluster: Cluster,
        scraper: Scraper,
        settings: Settings,
        metrics: OperatorMetrics,
        directory: Directory,
        keys: FleetKeys,
        routes_share: Callable[[Key], int | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        may_act: Callable[[Key], bool] = lambda _: True,
    ) -> None:
        """``routes_share``: bytes of the routing table that a fleet's namespace has, where its row is beyond them.

        ``may_act``: whether this operator may change the fleet's engines at this moment.
        """
        self.fleets: dict[Key, Fleet] = {}
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._directory = directory
        self._observer = FleetObserver(cluster, scraper, directory, keys, routes_share, clock, wall)
        self._executor = Executor(cluster, scraper, settings, metrics, clock, wall, may_act)

    def clear(self) -> None:
        """Begin anew from what is there: somebody else may have acted meanwhile."""
        self._metrics.forget_all()
        self._executor.clear_loads()
        self.fleets.clear()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; returns the seconds until the next time, None when the object is gone or cannot be used.

        What it raises is in the object's conditions, too, if they could be written; not :class:`NamespaceEnding` and
        :class:`FleetHandedOver`.
        """
        with self._metrics.reconcile_seconds.time():
            try:
                again = await self._reconcile(key)
            except (NamespaceEnding, FleetHandedOver) as ending:
                self._metrics.reconciles.labels("ok" if isinstance(ending, NamespaceEnding) else "handed_over").inc()
                raise
            except BaseException as error:
                self._metrics.reconciles.labels("error").inc()
                if isinstance(error, Exception):
                    await self._executor.report_error(key, error)
                raise
        self._metrics.reconciles.labels("ok").inc()
        return again

    async def _reconcile(self, key: Key) -> float | None:
        fleet = await self._read_fleet(key)
        if fleet is None:
            return None
        targets = fleet.memory.states.targets
        observed = await self._observer.observe(key, fleet.resource, fleet.readers, fleet.observed, targets)
        plan = make_plan(fleet.resource, observed, fleet.memory, self._settings)
        unreported = replace(plan.memory, at_floor=fleet.memory.at_floor)
        self.fleets[key] = replace(fleet, memory=unreported, observed=observed)
        after, fault = await self._executor.carry_out(key, plan, fleet.applied)
        self.fleets[key] = replace(fleet, memory=unreported, observed=after)
        await self._executor.report_plan(key, plan, after, fault, len(self.fleets))
        self.fleets[key] = replace(fleet, memory=plan.memory, observed=after)
        return plan.next_look_seconds

    def forget_key(self, key: Key) -> None:
        """The fleet is gone, or another operator's."""
        self.fleets.pop(key, None)
        self._executor.forget_key(key)
        self._metrics.remove_series(key)

    async def _read_fleet(self, key: Key) -> Fleet | None:
        """The fleet as its manifest is now; None where that is gone, or cannot be used, which is reported."""
        document, fleet = self._cluster.get(key), self.fleets.get(key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            self.forget_key(key)
            self._directory.forget_key(key)
            return None
        check_listed(self._cluster, key.namespace)
        try:
            resource = self._directory.read(key, document)
        except InvalidManifest as invalid:
            await self._executor.report_invalid(key, document, invalid)
            return None
        fleet = Fleet.from_status(resource) if fleet is None else replace(fleet, resource=resource)
        self.fleets[key] = fleet
        return fleet
