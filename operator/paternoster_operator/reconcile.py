"""One look at one LLMDeployment: observe, decide, apply, tell. What is there counts, not what happened."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.manifest import InvalidManifest, parse
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Cluster, Event, Key
from paternoster_operator.desired.children import build_children
from paternoster_operator.desired.service import service_url
from paternoster_operator.fleet import Fleet
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.observe import Observed
from paternoster_operator.scaling.decision import Decision, LawState, LoopDecision, Reason
from paternoster_operator.scaling.law import decide, first_state, longest_window, observation_window
from paternoster_operator.scaling.policy import ScalingPolicy
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings
from paternoster_operator.status import build_status, invalid_status

log = logging.getLogger(__name__)


class Reconciler:
    """Brings each LLMDeployment and what runs together, over a cluster's port."""

    def __init__(
        self,
        cluster: Cluster,
        scraper: Scraper,
        settings: Settings,
        metrics: OperatorMetrics,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.fleets: dict[Key, Fleet] = {}
        self._cluster = cluster
        self._scraper = scraper
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._wall = wall

    def forget(self) -> None:
        """Begin anew from what is there: somebody else may have acted meanwhile."""
        for key in self.fleets:
            self._metrics.forget(key)
        self.fleets.clear()

    async def reconcile(self, key: Key) -> float | None:
        """Look once; returns the seconds until the next look, None when the object is gone or cannot be used."""
        with self._metrics.reconcile_seconds.time():
            try:
                again = await self._reconcile(key)
            except BaseException:
                self._metrics.reconciles.labels("error").inc()
                raise
        self._metrics.reconciles.labels("ok").inc()
        return again

    async def _reconcile(self, key: Key) -> float | None:
        document = self._cluster.get(key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            if self.fleets.pop(key, None) is not None:
                self._metrics.forget(key)
            return None
        fleet = self.fleets.get(key)
        try:
            resource = parse(document, known=None if fleet is None else fleet.resource)
        except InvalidManifest as invalid:
            await self._refuse(key, document, invalid)
            return None
        if fleet is None:
            fleet = self.fleets[key] = Fleet.begin(resource)
        fleet.resource = resource
        policy = ScalingPolicy.from_spec(resource.spec, self._wall())
        await self._observe(key, fleet, policy)
        decision = decide(policy, fleet.signals, self._state(fleet, policy), self._clock())
        standing, news = fleet.remember(decision, self._timestamp())
        if not resource.spec.paused:
            await self._apply(key, resource, fleet, decision.state.replicas)
            await self._push_cap(fleet, decision.state.cap)
        await self._tell(key, fleet, policy, decision, standing, news)
        return self._settings.look_seconds

    async def _observe(self, key: Key, fleet: Fleet, policy: ScalingPolicy) -> None:
        assert fleet.resource is not None
        fleet.observed = Observed.from_cluster(self._cluster.deployment(key), self._cluster.pods(key))
        observed = fleet.observed
        urls = {pod.name: pod.url for pod in (*observed.serving, *observed.draining) if pod.url is not None}
        stats, held = await asyncio.gather(self._scraper.engines(urls), self._scraper.held(fleet.resource.served_name))
        now = self._clock()
        for pod, sample in stats.items():
            fleet.windows.observe(pod, sample, now, longest_window(policy.cap))
        fleet.windows.keep({pod.name for pod in observed.pods})
        fleet.startup.observe(observed.pods)
        window = longest_window(policy.cap)
        if fleet.state is not None:
            window = observation_window(policy.cap, fleet.state, now)
        fleet.signals = fleet.windows.summarize(
            window_seconds=window,
            flow_seconds=policy.cap.window_seconds,
            now=now,
            ready_pods=[pod.name for pod in observed.serving],
            pending_pods=len(observed.pending),
            held=held,
            startup_seconds=fleet.startup.average,
        )

    def _state(self, fleet: Fleet, policy: ScalingPolicy) -> LawState:
        """The law's memory; at first what runs already, so that a restarted operator changes nothing by itself."""
        if fleet.state is not None:
            return fleet.state
        deployment = fleet.observed.deployment
        return first_state(
            policy,
            self._clock(),
            replicas=deployment.spec_replicas if deployment is not None else None,
            # An engine that did not answer is no reason to lose the cap that was found for it.
            cap=fleet.signals.lowest_cap or _cap_in_status(fleet.resource),
        )

    async def _apply(self, key: Key, resource: LLMDeployment, fleet: Fleet, replicas: int) -> None:
        deployment = fleet.observed.deployment
        if deployment is not None and replicas < deployment.spec_replicas:
            await self._price(key, fleet)
        edited = deployment is None or deployment.generation > fleet.generation
        due = self._clock() - fleet.applied_at >= self._settings.resync_seconds
        for child in build_children(resource, replicas, self._settings.engine_image):
            kind = child["kind"]
            if due or (edited and kind == "Deployment") or fleet.applied.get(kind) != child:
                applied = await self._cluster.apply(child)
                fleet.applied[kind] = child
                if kind == "Deployment" and applied is not None:
                    fleet.observed = fleet.observed.with_deployment(applied)
                    fleet.generation = applied["metadata"].get("generation", 0)
        if due:
            fleet.applied_at = self._clock()

    async def _price(self, key: Key, fleet: Fleet) -> None:
        """Before pods are taken away: what each would cost, so that the ones with the fewest requests go."""
        known = [(pod.name, fleet.windows.latest(pod.name)) for pod in fleet.observed.serving]
        costs = {name: str(stats.running + stats.waiting) for name, stats in known if stats is not None}
        await asyncio.gather(
            *(self._cluster.annotate_pod(key, name, {labels.DELETION_COST: cost}) for name, cost in costs.items())
        )

    async def _push_cap(self, fleet: Fleet, cap: int) -> None:
        """Tell every engine that serves and does not have it; a restarted one begins at its capacity."""
        pushes = []
        for pod in fleet.observed.serving:
            stats = fleet.windows.latest(pod.name)
            if stats is not None and pod.url is not None and stats.live_cap != min(cap, stats.capacity):
                pushes.append(self._scraper.set_live_cap(pod.url, min(cap, stats.capacity)))
        await asyncio.gather(*pushes)

    async def _tell(
        self,
        key: Key,
        fleet: Fleet,
        policy: ScalingPolicy,
        decision: Decision,
        standing: Decision,
        news: Sequence[LoopDecision],
    ) -> None:
        assert fleet.resource is not None
        now = self._clock()
        status = build_status(
            fleet.resource,
            fleet.observed,
            fleet.signals,
            decision,
            standing,
            self._timestamp(),
            age_of_load=now - fleet.load_written,
            endpoint=self._settings.endpoint or self._settings.gateway_url or service_url(fleet.resource),
            bounds=policy.replicas,
            history=fleet.history.records,
            startup=fleet.startup.document(),
        )
        self._metrics.observe(key, fleet.signals, standing, news, len(fleet.observed.serving))
        previous = fleet.resource.status
        stalled = _condition(status, "Stalled")
        if stalled is not None and stalled["reason"] != (_condition(previous, "Stalled") or {}).get("reason"):
            await self._cluster.record_event(key, Event("Warning", stalled["reason"], stalled["message"]))
        if status != previous:
            await self._cluster.write_status(key, status)
            if status["load"] != previous.get("load"):
                fleet.load_written = now
        for made in news:
            if made.action != "Hold":
                await self._cluster.record_event(key, _event(made))
        if decision.concurrency is not None and decision.state.wants_replica and not fleet.storming:
            await self._cluster.record_event(key, Event("Warning", "PreemptionStorm", decision.concurrency.message))
        fleet.storming = decision.state.wants_replica

    async def _refuse(self, key: Key, document: Any, invalid: InvalidManifest) -> None:
        previous = document.get("status", {})
        generation = document["metadata"].get("generation", 0)
        stalled = _condition(previous, "Stalled") or {}
        if previous.get("observedGeneration") == generation and stalled.get("reason") == "InvalidSpec":
            return
        await self._cluster.write_status(key, invalid_status(generation, previous, invalid.errors, self._timestamp()))
        await self._cluster.record_event(key, Event("Warning", "InvalidSpec", "; ".join(invalid.errors)))

    def _timestamp(self) -> str:
        return self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cap_in_status(resource: LLMDeployment | None) -> int | None:
    return None if resource is None else resource.status.get("concurrency", {}).get("target") or None


_EVENTS = {
    ("Replicas", "Up"): "ScaledUp",
    ("Replicas", "Down"): "ScaledDown",
    ("Concurrency", "Up"): "ConcurrencyRaised",
    ("Concurrency", "Down"): "ConcurrencyLowered",
}
_EVENTS_BY_REASON = {Reason.SCALE_TO_ZERO_IDLE: "ScaledToZero", Reason.ACTIVATED_BY_REQUEST: "Activated"}


def _event(decision: LoopDecision) -> Event:
    limits = [reason.value for reason in decision.limited_by if reason is not Reason.AT_FLOOR]
    said = decision.message if decision.applied else f"advisory, not applied: {decision.message}"
    limited = f" (limited by {', '.join(limits)})" if limits else ""
    named = _EVENTS_BY_REASON.get(decision.reason) or _EVENTS[decision.loop, decision.action]
    return Event("Normal", named, said + limited)


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == type_), None)
