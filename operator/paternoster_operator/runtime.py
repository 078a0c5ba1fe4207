"""The operator at work over any cluster: queue, reconciler and what it publishes."""

import logging
import time

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_operator.cluster.port import Cluster, Key
from paternoster_operator.fleet import Fleet
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.observe import Observed
from paternoster_operator.queue import WorkQueue
from paternoster_operator.reconcile import Reconciler
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)


class Operator:
    """Give it a cluster, tell it which keys changed, and it keeps them reconciled."""

    def __init__(self, cluster: Cluster, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.metrics = OperatorMetrics()
        self._cluster = cluster
        self._scraper = Scraper(
            timeout_seconds=self.settings.scrape_timeout_seconds,
            gateway_url=self.settings.gateway_url,
            admin_key=self.settings.admin_key,
        )
        self._reconciler = Reconciler(cluster, self._scraper, self.settings, self.metrics)
        self._queue: WorkQueue[Key] = WorkQueue(self._look, workers=self.settings.workers)
        self.last_look = time.monotonic()
        """When a reconcile last ended, on the monotonic clock."""

    def enqueue(self, key: Key) -> None:
        """Something about ``key`` changed."""
        self._queue.add(key)

    def start(self) -> None:
        """Begin to work; needs a running event loop."""
        self._queue.start()
        for key in self._cluster.list():
            self.enqueue(key)

    async def stop(self) -> None:
        """Stop looking; what runs in the cluster goes on."""
        await self._queue.stop()
        await self._scraper.close()

    @property
    def alive(self) -> bool:
        return self._queue.alive

    def fleet(self, key: Key) -> Fleet | None:
        """What is known of one LLMDeployment, for a view."""
        return self._reconciler.fleets.get(key)

    def routing_table(self) -> RoutingTable:
        """Where requests go now, straight from the cluster's cache: a pod that is being deleted is out at once."""
        models: dict[str, ModelRoute] = {}
        for key in self._cluster.list():
            fleet = self.fleet(key)
            if fleet is None or fleet.resource is None:
                continue
            observed = Observed.from_cluster(None, self._cluster.pods(key))
            admission = fleet.resource.spec.admission
            route = models.setdefault(
                fleet.resource.served_name,
                ModelRoute(max_held=admission.max_held_requests, hold_timeout_seconds=admission.hold_timeout_seconds),
            )
            route.replicas += [
                Replica(name=pod.name, url=pod.url, ready=True) for pod in observed.serving if pod.url is not None
            ]
        return RoutingTable(models=models)

    async def _look(self, key: Key) -> float | None:
        try:
            return await self._reconciler.reconcile(key)
        finally:
            self.last_look = time.monotonic()
