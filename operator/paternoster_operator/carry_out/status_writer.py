"""Writes statuses and the events that go with them: of a plan, of a manifest that cannot be used, of a failure."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.cluster.port import Cluster, ClusterError, Event, Key
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import Plan
from paternoster_operator.plan.status import plan_status
from paternoster_operator.report.conditions import Condition, find_condition
from paternoster_operator.report.events import engine_events
from paternoster_operator.report.status import failed_status, invalid_status
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes what changed, and reports what lasts once."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._warned: dict[Key, dict[str, str]] = {}
        """The reason that was logged last for a condition, by its type."""
        self._load_written: dict[Key, float] = {}
        """When the load in the status was last written, on the operator's clock."""

    def forget_key(self, key: Key) -> None:
        """It is gone."""
        self._warned.pop(key, None)
        self._load_written.pop(key, None)

    async def write(self, key: Key, plan: Plan, after: Observed, fault: ClusterError | None, num_fleets: int) -> None:
        """Write the status of ``plan``; the arguments are as for :func:`plan_status`."""
        now, previous = self._clock(), plan.resource.status
        age = now - self._load_written.get(key, float("-inf"))
        status = plan_status(plan, after, fault, self._settings, age_of_load=age, num_fleets=num_fleets)
        self._metrics.observe(key, after.signals, plan.last_decision, plan.recorded, len(after.serving))
        self._metrics.observe_conditions(key, status["conditions"])
        self._metrics.observe_slo(key, plan.resource.spec.slo)
        for type_ in ("Stalled", "Contested", "GatewayCap"):
            await self._warn_once(key, status, previous, type_)
        if status != previous:
            await self._cluster.write_status(key, status)
            if status["load"] != previous.get("load"):
                self._load_written[key] = now
        for event in (*engine_events(status, previous), *plan.status_events):
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
