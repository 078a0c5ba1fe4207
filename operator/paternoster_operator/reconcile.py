"""One look at one LLMDeployment: observe, decide, apply, tell. What is there counts, not what happened."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineState
from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import (
    LIVE_CAP,
    QUEUE_WAIT,
    REPLICAS,
    TOKEN_BUDGET,
    Decision,
    LoopDecision,
)
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.scale_down import longest_answer_seconds
from paternoster_operator.cluster.port import Cluster, ClusterError, Event, Key, NamespaceEnding, WatchFailed
from paternoster_operator.cluster.read_objects import check_listed, read_objects
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.rollout import choose_strategy
from paternoster_operator.desired.service import service_url
from paternoster_operator.drain import drain_surplus
from paternoster_operator.fleet import Fleet
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.names.directory import Directory
from paternoster_operator.plausible import Refusal, find_implausible
from paternoster_operator.report.causes.cause import StallReason
from paternoster_operator.report.conditions import Access, Condition, find_condition
from paternoster_operator.report.disruptions import new_disruptions
from paternoster_operator.report.engine_facts import complete_stats
from paternoster_operator.report.events import decision_events, engine_events
from paternoster_operator.report.gateway_cap import find_gateway_cap
from paternoster_operator.report.model_fetch import merge_progress
from paternoster_operator.report.status import build_status, failed_status, invalid_status
from paternoster_operator.scrape import Scraper, count_routing, held_by_fleet, idle_by_fleet, requests_by_gateway
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)

WAITING_SECONDS = 1.0
"""Until the next look at a fleet that only waits for gateways to learn of it."""


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
    ) -> None:
        """``routes_share``: bytes of the routing table that a fleet's namespace has, where its row is beyond them."""
        self.fleets: dict[Key, Fleet] = {}
        self._cluster = cluster
        self._scraper = scraper
        self._settings = settings
        self._metrics = metrics
        self._directory = directory
        self._keys = keys
        self._routes_share = routes_share
        self._clock = clock
        self._wall = wall
        self._warned: dict[Key, dict[str, str]] = {}
        """The reason that was logged last for a condition, by its type."""

    def clear(self) -> None:
        """Begin anew from what is there: somebody else may have acted meanwhile."""
        self._metrics.forget_all()
        self.fleets.clear()

    async def reconcile(self, key: Key) -> float | None:
        """Look once; returns the seconds until the next look, None when the object is gone or cannot be used.

        What it raises but :class:`NamespaceEnding` is in the object's conditions, too, if they could be written.
        """
        with self._metrics.reconcile_seconds.time():
            try:
                again = await self._reconcile(key)
            except BaseException as error:
                ending = isinstance(error, NamespaceEnding)
                self._metrics.reconciles.labels("ok" if ending else "error").inc()
                if isinstance(error, Exception) and not ending:
                    await self._report_error(key, error)
                raise
        self._metrics.reconciles.labels("ok").inc()
        return again

    async def _reconcile(self, key: Key) -> float | None:
        document = self._cluster.get(key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            self.fleets.pop(key, None)
            self._warned.pop(key, None)
            self._metrics.remove_series(key)
            return None
        unwatched = check_listed(self._cluster, key.namespace)
        fleet = self.fleets.get(key)
        try:
            resource = self._directory.read(document, parsed=None if fleet is None else fleet.resource)
        except InvalidManifest as invalid:
            await self._report_invalid(key, document, invalid)
            return None
        if fleet is None:
            fleet = self.fleets[key] = Fleet.from_status(resource)
        fleet.resource = resource
        names, unnamed = await self._directory.claim_names(resource)
        waits = unnamed is not None and self._directory.may_start_unnamed(resource)
        fleet.autoscaler.policy = ScalingPolicy.from_spec(resource.spec, self._wall())
        refusal = await self._observe(key, fleet) or (None if waits else unnamed)
        if unwatched is not None:
            refusal = (WatchFailed.reason, f"{unwatched.message}; replicas and limits stay as they are")
        now = self._clock()
        decision = fleet.autoscaler.decide(now)
        last_decision, recorded = fleet.record_decision(decision, self._format_now())
        acts = refusal is None and not resource.spec.paused and resource.spec.target_ref is None
        fault = await self._apply_targets(key, fleet, decision.targets) if acts else None
        refusal = refusal or self._route_refusal(key) or (None if fault is None else (fault.reason, str(fault)))
        access = self._find_access(fleet, names, refusal or unnamed, refusal is None and waits)
        await self._update_status(key, fleet, decision, last_decision, recorded, access)
        if access.waiting:
            return WAITING_SECONDS
        sleep = fleet.autoscaler.seconds_until_sleep(now)
        return self._settings.look_seconds if sleep is None else min(self._settings.look_seconds, sleep)

    def _route_refusal(self, key: Key) -> tuple[str, str] | None:
        share = self._routes_share(key)
        if share is None:
            return None
        return (
            "RoutingTableFull",
            f"gateways have no route to this fleet: the fleets of namespace {key.namespace} need more than its share "
            f"of the routing table, {share} bytes: use fewer keys a fleet, or fewer fleets",
        )

    def _find_access(self, fleet: Fleet, names: tuple[str, ...], fault: tuple[str, str] | None, waits: bool) -> Access:
        assert fleet.resource is not None
        knowing = count_routing(fleet.gateways, names, fleet.resource.metadata.uid)
        gateways = None if self._settings.gateway_url is None or fleet.observed.is_target else len(fleet.gateways)
        return Access(names, None if fault is None else StallReason(*fault), knowing, gateways, waits)

    async def _observe(self, key: Key, fleet: Fleet) -> tuple[str, str] | None:
        """Observe objects, engines and gateways; returns why some cannot be (reason, message)."""
        resource = fleet.resource
        assert resource is not None
        before = {pod.name: pod.download for pod in fleet.observed.pods}
        fleet.observed, unobserved = await read_objects(self._cluster, key, resource)
        observed = fleet.observed
        urls = {pod.name: pod.admin_url for pod in observed.answering if pod.admin_url is not None}
        fetching = observed.fetching if resource.spec.model.remote else ()
        (stats, faults, failed_calls), fleet.gateways, downloads = await asyncio.gather(
            self._scraper.read_engines(urls, fleet.adapters, fleet.admin_keys),
            self._scraper.read_gateways(resource.metadata.uid),
            self._scraper.read_downloads({pod.name: pod.admin_url for pod in fetching if pod.admin_url is not None}),
        )
        if downloads:
            fleet.observed = observed.with_downloads(
                {pod: merge_progress(status, before.get(pod)) for pod, status in downloads.items()}
            )
        fleet.observed = await fleet.events.add_events(
            fleet.observed, self._cluster, key, self._clock(), self._format_now()
        )
        fleet.observed = fleet.served_pods.mark_pods(fleet.observed, self._format_now())
        observed = fleet.observed = await fleet.checks.add_faults(
            fleet.observed, resource, self._scraper.ask_engine, self._keys.gateway_keys, self._clock()
        )
        now, windows, believed = self._clock(), fleet.autoscaler.windows, {}
        fleet.cap_faults = fleet.cap_faults.observe(
            faults, fleet.engines, stats, [pod.name for pod in observed.answering]
        )
        refused = {pod: Refusal("form", fault) for pod, fault in faults.items() if pod not in {*stats, *failed_calls}}
        for pod in [pod for pod in observed.answering if pod.name in stats]:
            sample = complete_stats(stats[pod.name], pod.restarts, resource)
            last, since = windows.latest_sample(pod.name), windows.seconds_since_latest(pod.name, now)
            refusal = find_implausible(sample, last, since, capacity=pod.capacity, queue=pod.queue)
            if refusal is None:
                believed[pod.name] = sample
            else:
                refused[pod.name] = refusal
        await self._refuse_reports(key, fleet, refused)
        await self._report_disruptions(key, fleet)
        fleet.startup.observe(observed.pods, believed)
        fleet.engines = believed
        serving = observed.list_counted(lambda pod: pod in believed or windows.has_recent_sample(pod, now))
        observation = Observation(
            now=now,
            replicas=fleet.target_replicas,
            engines=believed,
            serving=serving,
            pending=[pod.name for pod in observed.pending],
            draining=[pod.name for pod in observed.pods if pod.name not in serving and pod not in observed.pending],
            held=held_by_fleet(fleet.gateways).get(resource.metadata.uid, 0),
            idle_seconds=idle_by_fleet(fleet.gateways).get(resource.metadata.uid),
            startup_seconds=fleet.startup.average,
            # An engine that did not answer is no reason to lose the cap that was found for it.
            live_cap=fleet.cap_in_status,
            gateway_requests=requests_by_gateway(fleet.gateways, resource.metadata.uid),
            refused_reports=tuple(f"{pod}: {refusal}" for pod, refusal in sorted(refused.items())),
            failed_calls=failed_calls,
        )
        fleet.autoscaler.observe(observation)
        return unobserved

    async def _refuse_reports(self, key: Key, fleet: Fleet, refused: Mapping[str, Refusal]) -> None:
        """Count each, and tell of a pod's first."""
        for pod, refusal in refused.items():
            self._metrics.count_refused_report(key, refusal.field)
            if pod not in fleet.refused:
                log.warning("%s: what %s tells of itself is not believed: %s", key, pod, refusal)
                await self._cluster.record_event(key, Event("Warning", "ReportsRefused", f"{pod}: {refusal}"))
        fleet.refused = frozenset(refused)

    async def _report_disruptions(self, key: Key, fleet: Fleet) -> None:
        """Record an event for each replica that was evicted, or that its node refused."""
        due, fleet.disrupted = new_disruptions(fleet.observed, fleet.disrupted, self._format_now())
        for event in due.values():
            log.warning("%s: %s: %s", key, event.reason, event.message)
            await self._cluster.record_event(key, event)

    async def _apply_targets(self, key: Key, fleet: Fleet, targets: Mapping[str, int]) -> ClusterError | None:
        """Apply children and settings of engines; returns what is in the way and stays there.

        Raises :class:`ClusterError` for what may be gone at the next try.
        """
        resource = fleet.resource
        assert resource is not None
        try:
            roots = await self._keys.read_roots()
            await self._apply(key, resource, fleet, targets[REPLICAS], roots)
            fleet.admin_keys = await self._keys.admin_keys(resource, roots)
            await self._set_limits(fleet, targets)
            clients = await self._keys.client_keys(resource)
            if clients.fault is not None:
                raise clients.fault
        except ClusterError as error:
            if error.retriable:
                raise
            self._metrics.count_failure(key, error.reason)
            return error
        return None

    async def _apply(self, key: Key, resource: LLMDeployment, fleet: Fleet, target: int, roots: RootKeys) -> None:
        deployment = fleet.observed.deployment
        requests = {pod: stats.running + stats.waiting for pod, stats in fleet.engines.items()}
        replicas, fleet.observed = await drain_surplus(
            self._cluster, key, fleet.observed, requests, target, self._longest_drain_seconds(resource, fleet),
            self._wall(),
        )  # fmt: skip
        settings, strategy = self._settings, choose_strategy(resource.spec, replicas, fleet.observed)
        children = build_children(resource, replicas, roots, settings.engines, peers=settings.peers, strategy=strategy)
        # A pod cannot start without its Secret.
        there = await fleet.applied.apply(
            self._cluster, key, children, count=self._metrics.traffic.count_write,
            now=self._clock(), resync=settings.resync_seconds, unwatched=bool(fleet.observed.pending),
        )  # fmt: skip
        fleet.observed = fleet.observed.with_applied(there, fleet.applied.foreign.values())
        if (
            deployment is not None
            and deployment.rolling
            and strategy.why
            and strategy.max_surge == 0 < (deployment.max_surge or 0)
        ):
            change = f"maxSurge {deployment.max_surge}->0, old replicas end before new ones start: {strategy.why}"
            await self._cluster.record_event(key, Event("Normal", "RolloutWithoutSurge", change))

    def _longest_drain_seconds(self, resource: LLMDeployment, fleet: Fleet) -> float | None:
        """None without a gateway: nothing routes around a drained pod."""
        if self._settings.gateway_url is None:
            return None
        longest = longest_answer_seconds(fleet.engines.values(), fleet.autoscaler.models.replica)
        return max(longest, resource.spec.drain.timeout_seconds)

    async def _set_limits(self, fleet: Fleet, targets: Mapping[str, int]) -> None:
        """Tell every engine what it does not have: a restarted one begins at its capacity, and admits."""
        calls, caps, adapters, faulty = [], {}, fleet.adapters, fleet.cap_faults.answers
        for pod in fleet.observed.answering:
            stats = fleet.autoscaler.windows.latest_sample(pod.name)
            if stats is None or pod.admin_url is None or pod.deleting:
                continue
            cap = min(targets[LIVE_CAP], stats.capacity)
            # 0 where an engine of an earlier release has no token budget, which would refuse one.
            budget = min(targets[TOKEN_BUDGET], stats.max_batched_tokens) or None
            wait = None if stats.max_queue_milliseconds is None else targets[QUEUE_WAIT]
            limits = LiveConfigPatch(live_cap=cap, token_budget=budget, max_queue_milliseconds=wait)
            if cap != stats.live_cap and pod.name in fleet.engines and pod.name not in faulty:
                caps[pod.name] = cap
            if limits != stats.limits and pod.name not in faulty:
                calls.append(self._scraper.set_limits(pod.admin_url, limits, fleet.admin_keys, adapters[pod.name]))
            drains = adapters[pod.name].kind.capabilities.drain
            if drains and pod.drain_wanted != (stats.state is EngineState.DRAINING):
                calls.append(self._scraper.set_drained(pod.admin_url, pod.drain_wanted, fleet.admin_keys))
        fleet.cap_faults = fleet.cap_faults.count_calls(caps)
        await asyncio.gather(*calls)

    async def _update_status(
        self,
        key: Key,
        fleet: Fleet,
        decision: Decision,
        last_decision: Decision,
        recorded: Sequence[LoopDecision],
        access: Access,
    ) -> None:
        assert fleet.resource is not None
        now, signals = self._clock(), fleet.autoscaler.signals
        status = build_status(
            fleet.resource,
            fleet.observed,
            signals,
            decision,
            last_decision,
            self._format_now(),
            access,
            steps=fleet.autoscaler.models.replica.steps,
            age_of_load=now - fleet.load_written,
            num_fleets=len(self.fleets),
            gateway_cap=find_gateway_cap(
                fleet.resource, fleet.cap_faults.by_pod, bool(fleet.engines), decision.targets[LIVE_CAP], fleet.gateways
            ),
            endpoint=self._settings.endpoint or self._settings.gateway_url or service_url(fleet.resource),
            bounds=fleet.autoscaler.policy.replicas,
            history=fleet.history.records,
            startup=fleet.startup.to_document(),
        )
        self._metrics.observe(key, signals, last_decision, recorded, len(fleet.observed.serving))
        self._metrics.observe_conditions(key, status["conditions"])
        self._metrics.observe_slo(key, fleet.resource.spec.slo)
        previous = fleet.resource.status
        for type_ in ("Stalled", "Contested", "GatewayCap"):
            await self._warn_once(key, status, previous, type_)
        if status != previous:
            await self._cluster.write_status(key, status)
            if status["load"] != previous.get("load"):
                fleet.load_written = now
        for event in (*engine_events(status, previous), *decision_events(recorded)):
            await self._cluster.record_event(key, event)
        at_limit = {made.loop: made.message for made in last_decision.values() if made.preempts_at_floor}
        for loop in at_limit.keys() - fleet.loops_at_limit:
            await self._cluster.record_event(key, Event("Warning", "PreemptionAtLowestCap", at_limit[loop]))
        fleet.loops_at_limit = frozenset(at_limit)

    async def _report_invalid(self, key: Key, document: Any, invalid: InvalidManifest) -> None:
        previous = document.get("status", {})
        generation = document["metadata"].get("generation", 0)
        stalled = find_condition(previous, "Stalled") or {}
        status = invalid_status(generation, previous, invalid.errors, self._format_now())
        self._metrics.observe_conditions(key, status["conditions"])
        if previous.get("observedGeneration") == generation and stalled.get("reason") == "InvalidSpec":
            return
        await self._cluster.write_status(key, status)
        await self._cluster.record_event(key, Event("Warning", "InvalidSpec", "; ".join(invalid.errors)))

    async def _warn_once(self, key: Key, status: Mapping[str, Any], previous: Mapping[str, Any], type_: str) -> None:
        """Log and record the condition of that type if its reason changed since the last status."""
        condition, warned = find_condition(status, type_), self._warned.setdefault(key, {})
        reason = warned.pop(type_, None)
        if condition is None:
            return
        warned[type_] = condition["reason"]  # the status may be one that cannot be written, for as long as that lasts
        if condition["reason"] not in (reason, (find_condition(previous, type_) or {}).get("reason")):
            log.warning("%s: %s: %s", key, condition["reason"], condition["message"])
            await self._cluster.record_event(key, Event("Warning", condition["reason"], condition["message"]))

    async def _report_error(self, key: Key, error: Exception) -> None:
        """Report a reconcile that ended early, in place of its conditions."""
        document = self._cluster.get(key)
        if document is None:
            return
        previous, generation = document.get("status", {}), document["metadata"].get("generation", 0)
        if isinstance(error, ClusterError):
            # What may be gone at the next try leaves the resource not at rest; everything else stalls it.
            condition = Condition("Reconciling" if error.retriable else "Stalled", "True", error.reason, str(error))
        else:
            condition = Condition("Stalled", "True", "ReconcileFailed", f"{type(error).__name__}: {error}")
        status = failed_status(generation, previous, condition, self._format_now())
        self._metrics.count_failure(key, condition.reason)
        self._metrics.observe_conditions(key, status["conditions"])
        try:
            await self._warn_once(key, status, previous, condition.type)
            if status != previous:
                await self._cluster.write_status(key, status)
        except ClusterError as other:  # the queue logs ``error``, now and then
            log.debug("%s: its status does not tell of %s: %s", key, type(error).__name__, other)

    def _format_now(self) -> str:
        return self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
