"""The status from what is observed and decided: pure, so that equal inputs give equal documents."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from paternoster_contract.cli.quoting import quote_document
from paternoster_contract.labels import engine_labels
from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, TOKEN_BUDGET, Decision
from paternoster_operator.autoscaling.policy import ReplicaPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.step_model import StepModel
from paternoster_operator.engines.adapter import Actuator
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed
from paternoster_operator.report.conditions import UP_TO_DATE, Access, Condition, find_conditions, stamp_conditions
from paternoster_operator.report.default_parameters import write_default_parameters
from paternoster_operator.report.engine_facts import EngineFacts, describe_engine
from paternoster_operator.report.gateway_cap import GatewayCap
from paternoster_operator.report.lora_adapters import describe_lora_adapters
from paternoster_operator.report.other_installation import find_other_installation

LOAD_REFRESH_SECONDS = 60
LOAD_CHANGE = 0.1
"""Load numbers are written again when one moved by more than this share, or the last ones are old."""
MOVED_LOADS_PER_SECOND = 20
"""Most statuses of all fleets that are written in a second because a number of the load moved."""
LOAD_CONDITIONS = frozenset({"ConcurrencyStable", "ScalingLimited"})
"""Types whose messages are those of decisions, with numbers of the load."""
_PRICES = (
    "fixedSeconds",
    "perPrefillTokenSeconds",
    "perDecodeSequenceSeconds",
    "perKvTokenSeconds",
    "perPrefillPairSeconds",
)
"""Prices of :data:`paternoster_operator.autoscaling.step_model.Cost`, as a hardware profile names them."""
_COUNTS = ("finishedRequests", "preemptedRequests")
"""They grow with the window at every look; what they say of the load is in their ratio."""
_DIGITS = Decimal("0.0001")
_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000


def build_status(
    resource: LLMDeployment,
    observed: Observed,
    signals: Signals,
    decision: Decision,
    last_decision: Decision,
    now: str,
    access: Access,
    *,
    steps: StepModel,
    age_of_load: float,
    endpoint: str,
    num_fleets: int = 1,
    gateway_cap: GatewayCap | None = None,
    bounds: ReplicaPolicy | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    startup: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole status. ``now`` is an RFC 3339 time; ``age_of_load`` says how old the load in the last status is, in s.

    ``decision`` is this look's; ``last_decision`` has the last one of each loop, also where it was not due now.
    ``num_fleets`` share :data:`MOVED_LOADS_PER_SECOND`.
    ``steps`` is the fitted cost of a step, ``gateway_cap`` is the live cap where no call moves that of the engines,
    ``bounds`` are the replica loop's where it is on. ``history`` has all loops' records, newest first.
    """
    previous, engines = resource.status, EngineFacts.from_reports(signals.reports)
    if observed.is_target:
        gateway_cap = None  # gateways have no route to its engines
    adapters = describe_lora_adapters(resource, observed)
    conditions = find_conditions(resource, observed, signals, last_decision, now, access, gateway_cap, adapters)
    kind = KINDS[resource.spec.engine.runtime.type]
    actuator = kind.actuator
    if gateway_cap is not None:
        actuator = Actuator.NONE if access.gateways is None else Actuator.GATEWAY
    selector = {} if observed.is_target else engine_labels(resource.metadata.name)
    if observed.is_target:
        actuator = Actuator.NONE
    status: dict[str, Any] = {
        "observedGeneration": resource.metadata.generation,
        "conditions": stamp_conditions(conditions, previous.get("conditions", []), resource.metadata.generation, now),
        "replicas": len(observed.live),
        "readyReplicas": len(observed.serving),
        "updatedReplicas": observed.deployment.updated if observed.deployment else 0,
        "pendingReplicas": len(observed.pending),
        "drainingReplicas": len(observed.draining),
        "desiredReplicas": decision.targets[REPLICAS],
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        "endpoint": "" if observed.is_target else endpoint,
        "servedModel": access.names[0] if access.names else "",
        "servedAliases": list(access.names[1:]),
        "engine": describe_engine(kind, engines.version, actuator, signals.unreported),
        "concurrency": {
            "target": decision.targets[LIVE_CAP],
            **_without_zeros(
                capacity=engines.capacity, currentMin=engines.lowest_live_cap, currentMax=engines.highest_live_cap
            ),
        },
        "load": _load_status(
            signals, last_decision, previous.get("load", {}), now, age_of_load, num_fleets / MOVED_LOADS_PER_SECOND
        ),
        "decisions": [dict(record) for record in history],
    }
    status |= {name: previous[name] for name in ("installation", "maxModelLen", "shardToken") if name in previous}
    if adapters:
        status["adapters"] = adapters
    status |= _without_zeros(maxModelLen=engines.max_model_len)
    budget = _without_zeros(
        capacity=engines.token_capacity, target=decision.targets[TOKEN_BUDGET], current=engines.token_budget
    )
    if budget:
        status["tokenBudget"] = budget
    if find_other_installation(previous, now) is not None:
        status["otherInstallation"] = previous["otherInstallation"]
    if engines.default_parameters is not None:
        status["defaultParameters"] = write_default_parameters(engines.default_parameters)
    elif "defaultParameters" in previous:
        status["defaultParameters"] = previous["defaultParameters"]
    if gateway_cap is not None and access.gateways is not None:
        status["gatewayCap"] = gateway_cap.to_status()
    if bounds is not None:
        in_force = {
            "minReplicas": bounds.lowest,
            "maxReplicas": bounds.highest,
            "schedules": list(bounds.bounds.schedules),
        }
        status["bounds"] = in_force
    if startup is not None:
        status["startup"] = dict(startup)
    model = _replica_model(steps, engines) if signals.reports else previous.get("replicaModel")
    if model is not None:
        # With the load, as each write of a status is one to etcd.
        unchanged = previous.get("replicaModel") if status["load"] == previous.get("load") else None
        status["replicaModel"] = unchanged or model
    costs = compute_economics(resource.spec, observed, status["load"])
    if costs is not None:
        status["economics"] = costs
    scaled = decision.get(REPLICAS)
    if scaled is not None and scaled.action != "Hold" and scaled.applied:
        status["lastScaleTime"] = now
    elif "lastScaleTime" in previous:
        status["lastScaleTime"] = previous["lastScaleTime"]
    status = _quote_status(status)
    if _without_words(status) == _without_words(previous):
        return dict(previous)  # the load is as before, and numbers in the words wait for it
    return status


def invalid_status(generation: int, previous: Mapping[str, Any], errors: list[str], now: str) -> dict[str, Any]:
    """Status of a resource whose spec cannot be used: what runs goes on, and the faults are named."""
    message = "; ".join(errors)
    conditions = [
        Condition("Ready", "False", "InvalidSpec", message),
        Condition(UP_TO_DATE, "False", "InvalidSpec", message),
        Condition("Stalled", "True", "InvalidSpec", message),
    ]
    stamped = stamp_conditions(conditions, previous.get("conditions", []), generation, now)
    return _quote_status({**previous, "observedGeneration": generation, "conditions": stamped})


def failed_status(generation: int, previous: Mapping[str, Any], failure: Condition, now: str) -> dict[str, Any]:
    """Status of a resource whose reconcile failed: the earlier one, and the ``failure``."""
    conditions = [
        Condition(each["type"], each["status"], each["reason"], each.get("message", ""))
        for each in previous.get("conditions", ())
        if each["type"] not in (UP_TO_DATE, "Reconciling", "Stalled")
    ]
    if all(condition.type != "Ready" for condition in conditions):
        conditions.insert(0, Condition("Ready", "Unknown", failure.reason, failure.message))
    conditions.insert(1, Condition(UP_TO_DATE, "Unknown", failure.reason, failure.message))
    stamped = stamp_conditions([*conditions, failure], previous.get("conditions", []), generation, now)
    return _quote_status({**previous, "observedGeneration": generation, "conditions": stamped})


def _without_zeros(**numbers: int) -> dict[str, int]:
    """Leave out the numbers that no engine reports, and that were not decided: no real one is 0."""
    return {name: number for name, number in numbers.items() if number}


def _quote_status(status: dict[str, Any]) -> dict[str, Any]:
    """Engines, API servers and manifests have a part in many of its texts; terminals and other programs show them."""
    quoted: dict[str, Any] = quote_document(status)
    return quoted


def _replica_model(steps: StepModel, engines: EngineFacts) -> dict[str, Any] | None:
    """What a step takes, with three digits; None while unknown."""
    if (cost := steps.trusted_cost) is None:
        return None
    step = steps.prompt_step if steps.decode_line is None else steps.mixed_step
    largest = step(engines.token_capacity)
    return {
        **dict(zip(_PRICES, (f"{seconds:.3g}" for seconds in cost), strict=True)),
        "fitPercent": round(100 * steps.fit),
        "largestStepMilliseconds": 0 if largest is None else round(1000 * largest),
        "kvBlocks": engines.kv_blocks,
        "kvBlockSize": engines.kv_block_size,
        "maxModelLen": engines.max_model_len,
    }


def compute_economics(spec: LLMDeploymentSpec, observed: Observed, load: Mapping[str, Any]) -> dict[str, Any] | None:
    """Economics for the status; None without ``spec.cost``.

    Allocation is what counts: a GPU costs from the moment a pod holds it, also while the pod loads or drains. ``load``
    is that of the status, so that both are written together.
    """
    if spec.cost is None:
        return None
    gpus = spec.resources.gpu.count * sum(pod.holds_devices for pod in observed.pods)
    per_hour = gpus * Decimal(spec.cost.gpu_hour)
    document: dict[str, Any] = {
        "basis": "Allocation",
        "currency": spec.cost.currency,
        "gpus": gpus,
        "costPerHour": str(per_hour.quantize(_DIGITS)),
    }
    tokens_per_hour = load.get("generationTokensPerSecond", 0) * _SECONDS_PER_HOUR
    if tokens_per_hour:
        document["costPerMillionOutputTokens"] = str((per_hour * _MILLION / tokens_per_hour).quantize(_DIGITS))
    return document


def _without_words(status: Mapping[str, Any]) -> dict[str, Any]:
    """``status`` without the messages that have numbers of the load."""
    conditions = [
        {**each, "message": ""} if each["type"] in LOAD_CONDITIONS else each for each in status.get("conditions", ())
    ]
    return {**status, "conditions": conditions}


def _load_status(
    signals: Signals, last_decision: Decision, previous: Mapping[str, Any], now: str, age: float, spacing: float
) -> dict[str, Any]:
    """The numbers of now, or ``previous``, which are ``age`` seconds old: numbers that moved wait for ``spacing``."""
    replicas = last_decision.get(REPLICAS)
    load: dict[str, int] = {
        "heldRequests": signals.held,
        "fresh": signals.fresh,
    }
    if replicas is not None and replicas.utilization is not None:
        load["utilizationPercent"] = round(100 * replicas.utilization)
    if signals.has_numbers():
        load["runningRequests"], load["waitingRequests"] = signals.running, signals.waiting
        load["generationTokensPerSecond"] = round(signals.generation_tokens_per_second)
    if signals.has_numbers(Unreported.KV_BLOCKS):
        load["kvCachePercent"] = round(100 * signals.kv_usage)
    if signals.has_numbers(Unreported.REQUESTS):
        load["finishedRequests"] = signals.finished
    if signals.has_numbers(Unreported.PREEMPTIONS):
        load["preemptedRequests"] = signals.preempted
        load["preemptionsPerThousand"] = round(1000 * signals.preemption_rate)
    if (
        not previous
        or age >= LOAD_REFRESH_SECONDS
        or load["fresh"] != previous.get("fresh")
        or (age >= spacing and _has_moved(load, previous))
    ):
        return {**load, "sampleTime": now}
    return dict(previous)


def _has_moved(load: Mapping[str, int], previous: Mapping[str, Any]) -> bool:
    return not load.keys() <= previous.keys() <= {*load, "sampleTime"} or any(
        abs(value - previous.get(key, 0)) > LOAD_CHANGE * previous.get(key, 0)
        for key, value in load.items()
        if key not in _COUNTS
    )
