"""Why a fleet is as it is: its state, what keeps it, and the last decisions, in words. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ABNORMAL = ("Reconciling", "Stalled", "Contested", "RemovedFields", "ScalingLimited")
"""Conditions worth telling while true."""
_NORMAL = ("Ready", "UpToDate", "MetricsFresh", "ScalingActive", "ConcurrencyStable")
"""Conditions worth telling while not true."""
_ALWAYS = ("Ready", "GatewayCap")
"""Conditions worth telling wherever they are."""
_SUMMARY = (
    "conditions", "replicas", "readyReplicas", "pendingReplicas", "drainingReplicas", "desiredReplicas", "bounds",
    "concurrency", "gatewayCap", "tokenBudget", "replicaModel", "load", "startup", "economics", "decisions",
)  # fmt: skip

_PARTS = {"download": "download", "imports": "imports", "load": "load", "warmUp": "warm-up"}
"""Parts of a start, in its order."""
Status = Mapping[str, Any]


def summarize_status(document: Mapping[str, Any], *, last: int) -> dict[str, Any]:
    """The explanation as JSON, with the names of the status."""
    metadata, status = document["metadata"], document.get("status", {})
    shown_parts = {key: status[key] for key in _SUMMARY if key in status}
    shown_parts["decisions"] = list(status.get("decisions", ()))[:last]
    return {"namespace": metadata.get("namespace", "default"), "name": metadata["name"], **shown_parts}


def explain_status(document: Mapping[str, Any], *, last: int) -> list[str]:
    """Explain a status to a reader, in lines."""
    metadata, status = document["metadata"], document.get("status", {})
    lines = [f"{metadata.get('namespace', 'default')}/{metadata['name']}"]
    if not status.get("conditions"):
        return [*lines, "", "No operator has looked at it yet."]
    lines += ["", *align_columns(describe_state(document.get("spec", {}), status)), ""]
    lines += align_columns(describe_conditions(status["conditions"]))
    decisions = list(status.get("decisions", ()))[:last]
    lines += ["", f"Last {len(decisions)} decisions, newest first" if decisions else "No decision yet"]
    for decision in decisions:
        lines += ["", *_describe_decision(decision)]
    return lines


def describe_state(spec: Mapping[str, Any], status: Status) -> Iterator[tuple[str, ...]]:
    moving = [f"{status[key]} {word}" for key, word in _MOVING if status.get(key)]
    replicas = ", ".join([f"{status.get('readyReplicas', 0)} of {status.get('desiredReplicas', 0)} serve", *moving])
    yield "replicas", replicas + _describe_bounds(status.get("bounds")) + (", paused" if spec.get("paused") else "")
    cap = status.get("concurrency", {})
    if (held := status.get("gatewayCap")) is not None:
        yield "live cap", f"{held['maxInFlight']} requests at a time at each engine, held by gateways"
    elif capacity := cap.get("capacity"):
        yield "live cap", f"{cap.get('target', 0)} of {capacity} sequences an engine"
    else:
        yield "live cap", f"{cap.get('target', 0)} sequences an engine, whose capacity is not reported"
    budget, model = status.get("tokenBudget", {}), status.get("replicaModel")
    if budget.get("capacity"):
        yield "budget", f"{budget['target']} of {budget['capacity']} tokens a step"
    if model is not None and budget.get("capacity"):
        duration = f"a step of {budget['capacity']} tokens takes {model['largestStepMilliseconds'] / 1000:.3g} s here"
        yield "model", f"{duration}; the fit explains {model['fitPercent']}% of how steps differ"
    load = status.get("load", {})
    demand = "running and waiting requests not reported"
    if load.get("runningRequests") is not None:
        demand = f"{load['runningRequests']} running, {load.get('waitingRequests', 0)} waiting"
    used = load.get("utilizationPercent", 0)
    share = f"; what comes wants {used}% of what the replicas sustain" if used else ""
    yield "demand", f"{demand}, {load.get('heldRequests', 0)} held{share}"
    tokens = _describe_number(load, "generationTokensPerSecond", " tokens/s", "tokens/s")
    memory = _describe_number(load, "kvCachePercent", "% of KV used", "KV use")
    yield "engines", f"{tokens}, {_describe_preempted(load)}, {memory}"
    startup = status.get("startup")
    if startup is not None:
        parts = startup.get("lastParts")
        # What is left went into scheduling, images and probes.
        shown_parts = f": {', '.join(f'{_PARTS[part]} {parts[part]} s' for part in _PARTS)}" if parts else ""
        yield "start-up", f"{startup['averageSeconds']} s on average, {startup['lastSeconds']} s the last{shown_parts}"
    costs = status.get("economics")
    if costs is not None:
        each = costs.get("costPerMillionOutputTokens")
        per_token = f", {each} per million output tokens" if each else ""
        yield "cost", f"{costs['costPerHour']} {costs['currency']} an hour for {costs['gpus']} GPUs{per_token}"


def _describe_preempted(load: Mapping[str, Any]) -> str:
    """With the count that the share is of: 0 of 12 says less than 0 of 1000."""
    preempted, finished = load.get("preemptedRequests"), load.get("finishedRequests")
    if preempted is None:
        ended = "" if finished is None else f"{finished} requests finished, "
        return f"{ended}preemptions not reported"
    if finished is None:
        return f"{preempted} requests preempted of a count not reported"
    of = max(finished, preempted)
    return f"{preempted} of {of} requests preempted" if of else "no request finished lately"


def _describe_number(load: Mapping[str, Any], field: str, unit: str, name: str) -> str:
    """A number of engines with its unit, or that what has this ``name`` is not reported."""
    return f"{name} not reported" if load.get(field) is None else f"{load[field]}{unit}"


_MOVING = (("pendingReplicas", "on their way"), ("drainingReplicas", "draining"))


def _describe_bounds(bounds: Mapping[str, Any] | None) -> str:
    if bounds is None:
        return ""
    by = f" by schedule {', '.join(bounds['schedules'])}" if bounds["schedules"] else ""
    return f"; {bounds['minReplicas']} to {bounds['maxReplicas']} allowed{by}"


def describe_conditions(conditions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for each in conditions:
        kind, status = each["type"], each["status"]
        if kind in _ALWAYS or (kind in _ABNORMAL and status == "True") or (kind in _NORMAL and status != "True"):
            yield kind, status, each["reason"], each.get("message", "")


def _describe_decision(decision: Mapping[str, Any]) -> Iterator[str]:
    what = f"{decision['loop']} {decision['from']} -> {decision['to']}"
    if decision["action"] == "Hold":
        what, outcome = f"{decision['loop']} {decision['from']}", "held"
    else:
        outcome = "applied" if decision["applied"] else "advised, not applied"
    yield f"{decision['time']}  {what}  {decision['reason']}  ({outcome})"
    details = [
        ("why", decision["message"]),
        ("formula", decision.get("formula", "")),
        ("limited by", ", ".join(decision.get("limitedBy", ()))),
        ("otherwise", _describe_alternative(decision)),
        ("inputs", "  ".join(f"{name}={value}" for name, value in decision.get("inputs", {}).items())),
    ]
    for line in align_columns((name, text) for name, text in details if text):
        yield f"  {line}"


def _describe_alternative(decision: Mapping[str, Any]) -> str:
    """What would have happened; from the recommendation where the law has no more."""
    if decision.get("otherwise"):
        return str(decision["otherwise"])
    if decision["recommended"] != decision["to"]:
        return f"{decision['recommended']} without limits"
    return ""


def align_columns(rows: "Iterator[tuple[str, ...]]") -> list[str]:
    """Rows with every column but the last padded to its widest cell."""
    table = list(rows)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]) - 1)] if table else []
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in table
    ]
