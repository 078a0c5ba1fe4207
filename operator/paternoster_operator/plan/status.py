"""The status and its events, once a plan is carried out. Pure."""

from typing import Any

from paternoster_operator.autoscaling.decision import LIVE_CAP
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.desired.service import service_url
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import Plan, count_gateways
from paternoster_operator.report.causes.cause import StallReason
from paternoster_operator.report.conditions import Access
from paternoster_operator.report.gateway_cap import find_gateway_cap
from paternoster_operator.report.status import build_status
from paternoster_operator.settings import Settings


def plan_status(
    plan: Plan,
    after: Observed,
    fault: ClusterError | None,
    settings: Settings,
    *,
    age_of_load: float = 0.0,
    num_fleets: int = 1,
) -> dict[str, Any]:
    """The status of ``plan`` once it is carried out: ``after`` is what there is then, ``fault`` what was in the way.

    ``age_of_load`` and ``num_fleets`` are as for :func:`build_status`.
    """
    resource, signals = plan.resource, after.signals
    return build_status(
        resource,
        after,
        signals,
        plan.decision,
        plan.last_decision,
        after.time,
        _find_access(plan, after, fault, settings),
        steps=plan.memory.models.replica.steps,
        age_of_load=age_of_load,
        num_fleets=num_fleets,
        gateway_cap=find_gateway_cap(
            resource, after.cap_faults.by_pod, bool(after.engines), plan.decision.targets[LIVE_CAP], after.gateways
        ),
        endpoint=settings.endpoint or settings.gateway_url or service_url(resource),
        bounds=plan.bounds,
        history=plan.memory.history.records,
        startup=after.startup,
    )


def _find_access(plan: Plan, after: Observed, fault: ClusterError | None, settings: Settings) -> Access:
    refusal = after.refusal
    if refusal is None and after.routes_share is not None:
        refusal = refuse_route(plan.resource.metadata.namespace, after.routes_share)
    if refusal is None and fault is not None:
        refusal = (fault.reason, str(fault))
    met, waits = refusal or after.unnamed, refusal is None and after.starts_unnamed
    stall = None if met is None else StallReason(*met)
    return Access(after.names, stall, after.num_routing, count_gateways(after, settings), waits)


def refuse_route(namespace: str, share: int) -> tuple[str, str]:
    """Why gateways have no route to a fleet of ``namespace`` (reason, message), whose share of the table is full."""
    return (
        "RoutingTableFull",
        f"gateways have no route to this fleet: the fleets of namespace {namespace} need more than its share "
        f"of the routing table, {share} bytes: use fewer keys a fleet, or fewer fleets",
    )
