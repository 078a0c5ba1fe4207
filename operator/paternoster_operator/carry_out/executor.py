"""Carries plans out: events, drains, children, calls to engines, then the status; and reports what has no plan."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.carry_out.applied_children import AppliedChildren
from paternoster_operator.cluster.port import Cluster, ClusterError, Event, FleetHandedOver, Key
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import EngineCall, FleetChanges, Plan, plan_status
from paternoster_operator.report.conditions import Condition, find_condition
from paternoster_operator.report.events import engine_events, lora_events
from paternoster_operator.report.status import failed_status, invalid_status
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)


class Executor:
    """Decides nothing but what was sent or reported already."""

    def __init__(
        self,
        cluster: Cluster,
        scraper: Scraper,
        settings: Settings,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        may_act: Callable[[Key], bool] = lambda _: True,
    ) -> None:
        self._may_act = may_act
        self._cluster = cluster
        self._scraper = scraper
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._warned: dict[Key, dict[str, str]] = {}
        """The reason that was logged last for a condition, by its type."""
        self._load_written: dict[Key, float] = {}
        """When the load in the status was last written, on the operator's clock."""

    async def carry_out(self, key: Key, plan: Plan, applied: AppliedChildren) -> tuple[Observed, ClusterError | None]:
        """Returns what there is then, and what was in the way; ``applied`` is what was sent of children before."""
        for refusal in plan.observed.refused.values():
            self._metrics.count_refused_report(key, refusal.field)
        for event in plan.events:
            log.warning("%s: %s: %s", key, event.reason, event.message)
            await self._cluster.record_event(key, event)
        if plan.changes is None:
            return plan.observed, plan.observed.keys.fault
        return await self._change_fleet(key, plan, plan.changes, applied)

    async def _change_fleet(
        self, key: Key, plan: Plan, changes: FleetChanges, applied: AppliedChildren
    ) -> tuple[Observed, ClusterError | None]:
        """Change children and engines; returns what there is then, and what is in the way."""
        after, keys = plan.observed, plan.observed.keys
        try:
            await asyncio.gather(
                *(self._cluster.annotate_pod(key, pod, made) for pod, made in changes.annotations.items())
            )
            after = changes.drained
            # A pod cannot start without its Secret.
            there = await applied.apply(
                self._cluster, key, changes.children, changes.superfluous, count=self._metrics.traffic.count_write,
                now=self._clock(), resync=self._settings.resync_seconds, unwatched=bool(after.pending),
            )  # fmt: skip
        except ClusterError as error:
            return after, error
        after = after.with_applied(there, applied.foreign.values())
        for event in changes.events:
            await self._cluster.record_event(key, event)
        if keys.fault is not None:
            return after, keys.fault
        if not self._may_act(key):
            return after, FleetHandedOver(key)
        await asyncio.gather(*(self._call_engine(call, keys.admin) for call in changes.calls))
        return replace(after, cap_faults=after.cap_faults.count_calls(changes.live_caps)), keys.client_fault

    async def _call_engine(self, call: EngineCall, keys: Sequence[str]) -> None:
        if call.lora is not None:
            await self._scraper.change_adapter(call.url, call.lora, keys)
        elif call.limits is None:
            await self._scraper.set_drained(call.url, call.drained, keys)
        else:
            await self._scraper.set_limits(call.url, call.limits, keys, call.adapter)

    def clear_loads(self) -> None:
        """Another operator may have written the load of any fleet since."""
        self._load_written.clear()

    def forget_key(self, key: Key) -> None:
        """It is gone."""
        self._warned.pop(key, None)
        self._load_written.pop(key, None)

    async def report_plan(
        self, key: Key, plan: Plan, after: Observed, fault: ClusterError | None, num_fleets: int
    ) -> None:
        """Write the status of ``plan``, and its events; the arguments are as for :func:`plan_status`.

        Raises :class:`ClusterError` for what may be gone at the next try.
        """
        if fault is not None:
            if fault.retriable:
                raise fault
            self._metrics.count_failure(key, fault.reason)
        now, previous = self._clock(), plan.resource.status
        age = now - self._load_written.get(key, float("-inf"))
        status = plan_status(plan, after, fault, self._settings, age_of_load=age, num_fleets=num_fleets)
        self._metrics.observe(key, after.signals, plan.memory.last_decision, plan.recorded, len(after.serving))
        self._metrics.observe_conditions(key, status["conditions"])
        self._metrics.observe_slo(key, plan.resource.spec.slo)
        for type_ in ("Stalled", "Contested", "RemovedFields", "GatewayCap"):
            await self._warn_once(key, status, previous, type_)
        if status != previous:
            await self._cluster.write_status(key, status)
            if status["load"] != previous.get("load"):
                self._load_written[key] = now
        for event in (*engine_events(status, previous), *lora_events(status, previous), *plan.status_events):
            await self._cluster.record_event(key, event)

    async def report_invalid(self, key: Key, document: Mapping[str, Any], invalid: InvalidManifest) -> None:
        """Report a manifest that cannot be used."""
        previous = document.get("status", {})
        generation = document["metadata"].get("generation", 0)
        stalled = find_condition(previous, "Stalled") or {}
        status = invalid_status(generation, previous, invalid.errors, self._format_now())
        self._metrics.observe_conditions(key, status["conditions"])
        if previous.get("observedGeneration") == generation and stalled.get("reason") == "InvalidSpec":
            return
        await self._cluster.write_status(key, status)
        await self._cluster.record_event(key, Event("Warning", "InvalidSpec", "; ".join(invalid.errors)))

    async def report_error(self, key: Key, error: Exception) -> None:
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

    def _format_now(self) -> str:
        return self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
