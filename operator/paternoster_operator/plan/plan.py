"""Everything that one reconcile of a fleet is to bring about, from what is observed and what was planned before. Pure.

An example: a fleet of two replicas that holds 70 requests, and whose engines take 32 each. :func:`make_plan` gives a
:class:`Plan` with the decision of the replica loop (``Up``, 2 to 3), the children, of which the Deployment has 3
replicas, no call to an engine, and the event ``ScaledUp`` for when the status is written.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract import labels
from paternoster_contract.admin import LiveConfigPatch, LoadLoraAdapter, UnloadLoraAdapter
from paternoster_contract.stats import EngineState
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.autoscaler import LOOPS, decide_loops, seconds_until_sleep
from paternoster_operator.autoscaling.control_loop import LoopStates
from paternoster_operator.autoscaling.decision import (
    LIVE_CAP,
    QUEUE_WAIT,
    REPLICAS,
    TOKEN_BUDGET,
    Decision,
    LoopDecision,
)
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.autoscaling.scale_down import longest_answer_seconds
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING
from paternoster_operator.cluster.port import ClusterError, Event
from paternoster_operator.desired.children import OPTIONAL, RootKeys, build_children
from paternoster_operator.desired.rollout import choose_strategy, explain_lost_surge
from paternoster_operator.desired.service import service_url
from paternoster_operator.engines.adapter import EngineAdapter
from paternoster_operator.observed import Observed
from paternoster_operator.plan.drain import Annotations, plan_drain
from paternoster_operator.plan.lora_adapters import find_loaded, is_settled, plan_lora_changes
from paternoster_operator.pods.reading import write_lora_adapters
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.cause import StallReason
from paternoster_operator.report.conditions import Access
from paternoster_operator.report.events import decision_events, new_disruptions
from paternoster_operator.report.gateway_cap import find_gateway_cap
from paternoster_operator.report.history import History
from paternoster_operator.report.status import build_status
from paternoster_operator.settings import Settings

KEPT_CHANGES = 100
EMPTY_MODELS = Models.empty()
WAITING_SECONDS = 1.0
"""Until the next look at a fleet that waits for gateways to learn of it, or for engines to load adapters."""


@dataclass(frozen=True, slots=True)
class FleetMemory:
    """State that a fleet's next plan is made from, beside the observation; all of it can be learnt again."""

    states: LoopStates = field(default_factory=LoopStates)
    """State of each loop of the law; empty before the first decision."""
    models: Models = EMPTY_MODELS
    last_decision: Decision = field(default_factory=lambda: Decision({}, {}))
    """The last decision of each loop."""
    history: History = field(default_factory=History)
    changes: tuple[LoopDecision, ...] = ()
    """The last decisions that changed something, oldest first."""
    num_changes: int = 0
    """How many there were in all."""
    disrupted: Collection[str] | None = None
    """Pods that were ended by something else than their Deployment and are reported; None before the first plan."""
    refused: Collection[str] = ()
    """Pods whose reports were refused."""
    at_floor: Collection[str] = ()
    """Loops at their floor while too many requests are preempted, as reported."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """A call to the engine of one pod: its limits, an adapter (LoRA), or whether it admits."""

    pod: str
    url: str
    adapter: EngineAdapter
    limits: LiveConfigPatch | None = None
    drained: bool = False
    """True for an engine that is to admit nothing more; read where the others are None."""
    lora: LoadLoraAdapter | UnloadLoraAdapter | None = None


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """Changes of a fleet's children and engines, in this order."""

    drained: Observed
    """The fleet once gateways send nothing to the pods that are to end."""
    annotations: Mapping[str, Annotations]
    """Annotations to change, by pod."""
    children: Sequence[dict[str, Any]]
    """Children to apply, in order."""
    events: Sequence[Event]
    """Events to record once the children are applied."""
    calls: Sequence[EngineCall]
    live_caps: Mapping[str, int]
    """Live caps that ``calls`` set and engines do not report, by pod."""

    @property
    def superfluous(self) -> list[dict[str, Any]]:
        """Children to delete where they are there, since a setting has turned them off: kind and name."""
        kinds, metadata = {child["kind"] for child in self.children}, self.children[-1]["metadata"]
        return [
            {"apiVersion": version, "kind": kind, "metadata": metadata}
            for kind, version in OPTIONAL.items()
            if kind not in kinds
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one reconcile is to bring about; :func:`plan_status` has the status of what came of it."""

    resource: LLMDeployment
    observed: Observed
    decision: Decision
    recorded: Sequence[LoopDecision]
    """The parts of it that are new in the history."""
    memory: FleetMemory
    bounds: ReplicaPolicy | None
    """Bounds of the replica loop where it is on."""
    events: Sequence[Event]
    """Events to record before anything is changed."""
    changes: FleetChanges | None
    """None where nothing may be changed, or the keys that all else depends on cannot be read."""
    status_events: Sequence[Event]
    """Events to record once the status is written."""
    next_look_seconds: float


def make_plan(resource: LLMDeployment, observed: Observed, memory: FleetMemory, settings: Settings) -> Plan:
    """Decide by the scaling law, and what follows from that; ``memory`` is that of the fleet's last plan."""
    policy, now = ScalingPolicy.from_spec(resource.spec, observed.at), observed.observation.now
    loops = [make(policy, DEFAULT_TUNING) for make in LOOPS]
    decision, models, states = decide_loops(
        loops, observed.observation, observed.signals, memory.models, memory.states, now
    )
    last_decision = decision.merge_earlier(memory.last_decision)
    history, recorded = memory.history.add(decision, observed.time)
    changed = tuple(made for made in recorded if made.action != "Hold")
    disruptions, disrupted = new_disruptions(observed, memory.disrupted, observed.time)
    moves = decision_events(recorded)
    refusals = [
        Event("Warning", "ReportsRefused", f"{pod}: {refusal}")
        for pod, refusal in observed.refused.items()
        if pod not in memory.refused
    ]
    at_floor = {made.loop: made.message for made in last_decision.values() if made.preempts_at_floor}
    floor_events = [
        Event("Warning", "PreemptionAtLowestCap", message)
        for loop, message in at_floor.items()
        if loop not in memory.at_floor
    ]
    may_change = observed.refusal is None and resource.spec.is_managed and observed.keys.admin_roots is not None
    loop = policy.replicas
    sleep = None if loop is None else seconds_until_sleep(loop, observed.signals, states, now)
    seconds = settings.look_seconds if sleep is None else min(settings.look_seconds, sleep)
    if _find_access(resource, observed, None, settings).waiting or (may_change and _awaits_adapters(observed)):
        seconds = min(WAITING_SECONDS, seconds)
    return Plan(
        resource,
        observed,
        decision,
        recorded,
        FleetMemory(
            states,
            models,
            last_decision,
            history,
            (*memory.changes, *changed)[-KEPT_CHANGES:],
            memory.num_changes + len(changed),
            disrupted,
            frozenset(observed.refused),
            frozenset(at_floor),
        ),
        loop,
        events=[*refusals, *disruptions.values()],
        changes=_plan_changes(resource, observed, decision.targets, models, settings) if may_change else None,
        status_events=[*moves, *floor_events],
        next_look_seconds=seconds,
    )


def _plan_changes(
    resource: LLMDeployment, observed: Observed, targets: Mapping[str, int], models: Models, settings: Settings
) -> FleetChanges:
    keys, longest = observed.keys, None
    assert keys.admin_roots is not None
    calls, live_caps = ([], {}) if keys.fault is not None else _plan_calls(observed, targets)
    loaded = _plan_lora_annotations(observed)
    if settings.gateway_url is not None:  # without one nothing routes around a drained pod
        longest = max(
            longest_answer_seconds(observed.engines.values(), models.replica), resource.spec.drain.timeout_seconds
        )
    drain = plan_drain(observed, targets[REPLICAS], longest)
    drained = observed.with_drained(drain.drained)
    strategy = choose_strategy(resource.spec, drain.replicas, drained)
    change = explain_lost_surge(observed.deployment, strategy)
    events = [Event("Normal", "RolloutWithoutSurge", change)] if change else []
    roots = RootKeys(keys.admin_roots, keys.gateway_roots)
    children = build_children(
        resource, drain.replicas, roots, settings.engines, peers=settings.peers, strategy=strategy
    )
    annotations = {
        pod: {**drain.annotations.get(pod, {}), **loaded.get(pod, {})} for pod in {**drain.annotations, **loaded}
    }
    return FleetChanges(drained, annotations, children, events, calls, live_caps)


def _plan_calls(observed: Observed, targets: Mapping[str, int]) -> tuple[list[EngineCall], dict[str, int]]:
    """Calls for what engines do not have: a restarted one begins at its capacity, and admits."""
    calls, live_caps, adapters, faulty = [], {}, observed.adapters, observed.cap_faults.answers
    for pod in observed.answering:
        stats, adapter = observed.samples.get(pod.name), adapters[pod.name]
        if stats is None or pod.admin_url is None or pod.deleting:
            continue
        cap = min(targets[LIVE_CAP], stats.capacity)
        # 0 where an engine of an earlier release has no token budget, which would refuse one.
        budget = min(targets[TOKEN_BUDGET], stats.max_batched_tokens) or None
        wait = None if stats.max_queue_milliseconds is None else targets[QUEUE_WAIT]
        limits = LiveConfigPatch(live_cap=cap, token_budget=budget, max_queue_milliseconds=wait)
        if cap != stats.live_cap and pod.name in observed.engines and pod.name not in faulty:
            live_caps[pod.name] = cap
        if limits != stats.limits and pod.name not in faulty:
            calls.append(EngineCall(pod.name, pod.admin_url, adapter, limits))
        if adapter.kind.capabilities.drain and pod.drain_wanted != (stats.state is EngineState.DRAINING):
            calls.append(EngineCall(pod.name, pod.admin_url, adapter, drained=pod.drain_wanted))
        calls += [EngineCall(pod.name, pod.admin_url, adapter, lora=change) for change in _plan_lora(pod, observed)]
    return calls, live_caps


def _plan_lora(pod: PodView, observed: Observed) -> list[LoadLoraAdapter | UnloadLoraAdapter]:
    """Adapters that the engine of ``pod`` is to load and unload; none where it reported nothing just now."""
    stats, desired = observed.engines.get(pod.name), observed.lora_adapters
    if stats is None or stats.adapters is None or desired is None:
        return []
    changes = plan_lora_changes(desired, stats.adapters, stats.time)
    return [*changes.unloads, *changes.loads]


def _plan_lora_annotations(observed: Observed) -> dict[str, Annotations]:
    """Annotations of pods whose engines have loaded other adapters than these say: gateways route by them."""
    changed: dict[str, Annotations] = {}
    for pod in observed.answering:
        stats = observed.engines.get(pod.name)
        if stats is None or observed.lora_adapters is None or pod.deleting:
            continue
        names = find_loaded(observed.lora_adapters, stats.adapters or ())
        if tuple(names) != pod.lora_adapters:
            changed[pod.name] = {labels.LORA_ADAPTERS: write_lora_adapters(pod.restarts, names) if names else None}
    return changed


def _awaits_adapters(observed: Observed) -> bool:
    """Whether an engine that serves is to load an adapter, and has neither done so nor failed to."""
    reports = [stats.adapters for pod in observed.serving if (stats := observed.engines.get(pod.name)) is not None]
    return any(
        not is_settled(adapter, seen)
        for seen in reports
        if seen is not None
        for adapter in observed.lora_adapters or ()
    )


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
        plan.memory.last_decision,
        after.time,
        _find_access(resource, after, fault, settings),
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


def _find_access(resource: LLMDeployment, observed: Observed, fault: ClusterError | None, settings: Settings) -> Access:
    refusal = observed.refusal
    if refusal is None and observed.routes_share is not None:
        refusal = refuse_route(resource.metadata.namespace, observed.routes_share)
    if refusal is None and fault is not None:
        refusal = (fault.reason, str(fault))
    met, waits = refusal or observed.unnamed, refusal is None and observed.starts_unnamed
    gateways = None if settings.gateway_url is None or observed.is_target else len(observed.gateways)
    return Access(observed.names, None if met is None else StallReason(*met), observed.num_routing, gateways, waits)


def refuse_route(namespace: str, share: int) -> tuple[str, str]:
    """Reason and message of a fleet without a route: the share of ``namespace`` of the routing table is full."""
    return (
        "RoutingTableFull",
        f"gateways have no route to this fleet: the fleets of namespace {namespace} need more than its share "
        f"of the routing table, {share} bytes: use fewer keys a fleet, or fewer fleets",
    )
