"""Carries a plan out: events, drains, children, calls to engines, then the status."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from paternoster_operator.carry_out.applied_children import AppliedChildren
from paternoster_operator.carry_out.status_writer import StatusWriter
from paternoster_operator.cluster.port import Cluster, ClusterError, Key
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import Changes, EngineCall, Plan
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)


class Executor:
    """Makes what a plan says so, and decides nothing but what was sent already."""

    def __init__(
        self,
        cluster: Cluster,
        scraper: Scraper,
        settings: Settings,
        metrics: OperatorMetrics,
        statuses: StatusWriter,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._scraper = scraper
        self._settings = settings
        self._metrics = metrics
        self._statuses = statuses
        self._clock = clock

    async def carry_out(self, key: Key, plan: Plan, applied: AppliedChildren, num_fleets: int) -> Observed:
        """Returns what there is then. Raises :class:`ClusterError` for what may be gone at the next try.

        ``applied`` is what was sent of the fleet's children before; the operator has ``num_fleets``.
        """
        for refusal in plan.observed.refused.values():
            self._metrics.count_refused_report(key, refusal.field)
        for event in plan.events:
            log.warning("%s: %s: %s", key, event.reason, event.message)
            await self._cluster.record_event(key, event)
        after, fault = plan.observed, plan.observed.keys.fault
        if plan.changes is not None:
            after, fault = await self._change_fleet(key, plan, plan.changes, applied)
        if fault is not None:
            if fault.retriable:
                raise fault
            self._metrics.count_failure(key, fault.reason)
        await self._statuses.write(key, plan, after, fault, num_fleets)
        return after

    async def _change_fleet(
        self, key: Key, plan: Plan, changes: Changes, applied: AppliedChildren
    ) -> tuple[Observed, ClusterError | None]:
        """Change children and engines; returns what there is then, and what is in the way."""
        after, keys = plan.observed, plan.observed.keys
        try:
            await asyncio.gather(
                *(self._cluster.annotate_pod(key, pod, made) for pod, made in changes.annotations.items())
            )
            after = after.with_drained(changes.drained)
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
        await asyncio.gather(*(self._call_engine(call, keys.admin) for call in changes.calls))
        return replace(after, cap_faults=after.cap_faults.count_calls(changes.live_caps)), keys.client_fault

    async def _call_engine(self, call: EngineCall, keys: Sequence[str]) -> None:
        if call.limits is None:
            await self._scraper.set_drained(call.url, call.drained, keys)
        else:
            await self._scraper.set_limits(call.url, call.limits, keys, call.adapter)
