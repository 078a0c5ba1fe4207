"""One page: whether a fleet is ready, why it is not or is slow, and what to do next. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.next_step import STEPS, find_next_step
from paternoster_operator.report.causes.stage import find_stage
from paternoster_operator.report.causes.stall_reason import find_pod_stall
from paternoster_operator.report.conditions import find_condition
from paternoster_operator.terminal.explain import align_columns, describe_conditions, describe_state

LAST_DECISIONS = 3
_OPEN = "any client that reaches the gateway may call it"
Document = Mapping[str, Any]


def is_ready(document: Document) -> bool:
    """Whether the fleet serves, or is to have no replica; as of its present manifest."""
    ready = find_condition(document.get("status", {}), "Ready")
    return ready is not None and ready["status"] == "True" and not _find_unseen(document)


def describe_fleet(
    document: Document, spec: LLMDeploymentSpec | None, pods: Sequence[Document] | str, now: str
) -> list[str]:
    """The page in lines.

    ``spec`` is None where the manifest cannot be used; ``pods`` are their documents, or why they were not read;
    ``now`` is an RFC 3339 time.
    """
    metadata, status = document["metadata"], document.get("status", {})
    name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    conditions: Sequence[Document] = status.get("conditions", ())
    if not conditions:
        step = "see that an operator runs and watches this namespace"
        return [f"{name} is not ready: no operator has looked at it yet", "", f"next  {step}"]
    causes = align_columns(_describe_causes(document))
    lines = [f"{name} is {'ready' if is_ready(document) else 'not ready'}", *([""] * bool(causes)), *causes]
    lines += ["", *align_columns(chain(_describe_parts(document), describe_state(document.get("spec", {}), status)))]
    if isinstance(pods, str):
        lines += ["", f"Pods: {pods}"]
    elif spec is not None and pods:
        lines += ["", "Pods", *align_columns(_describe_pods(Observed.from_cluster(None, pods), spec, now))]
    lines += ["", "Conditions", *align_columns(describe_conditions(conditions))]
    decisions = status.get("decisions", ())[:LAST_DECISIONS]
    if decisions:
        lines += ["", "Last decisions, newest first"]
        lines += align_columns((each["time"], each["reason"], each["message"]) for each in decisions)
    return lines


def _find_unseen(document: Document) -> str:
    """Reason for which the status is not that of the present manifest; empty where it is."""
    generation = document["metadata"].get("generation")
    if document.get("status", {}).get("observedGeneration", generation) == generation:
        return ""
    return "no operator has looked at the last edit yet"


def _describe_causes(document: Document) -> Iterator[tuple[str, ...]]:
    """The cause and the next step of each condition that is not as it should be, the main one first."""
    status = document.get("status", {})
    if unseen := _find_unseen(document):
        yield "why", unseen
        yield "next", "see that an operator runs and watches this namespace"
    conditions = status["conditions"]
    unusual = [each for each in conditions if each["type"] == "Stalled"]
    unusual += [each for each in conditions if each["type"] == "Ready" and each["status"] != "True" and not unusual]
    unusual += [each for each in conditions if each not in unusual and _needs_step(each)]
    shown_reasons: set[str] = set()
    for each in unusual:
        reason, message = each["reason"], each.get("message", "")
        step = find_next_step(reason, message)
        if reason in shown_reasons:
            continue
        shown_reasons.add(reason)
        yield "why", f"{reason}: {_without_step(message, step)}"
        yield "next", step or "wait: nothing was found that stands in its way"
    load, bounds = status.get("load", {}), status.get("bounds")
    if load.get("utilizationPercent", 0) > 100 and not shown_reasons & {"MaxReplicas", "GPUBudget"}:
        yield "why", f"Overloaded: the traffic needs {load['utilizationPercent']}% of what the replicas sustain"
        yield "next", "wait for more replicas" if bounds else "set spec.autoscaling, or raise spec.replicas"


def _without_step(message: str, step: str) -> str:
    return message.removesuffix(f"; {step}") if step else message


def _needs_step(condition: Document) -> bool:
    """Whether somebody could do something about it, beside what keeps the fleet from being ready."""
    unwanted = {"Contested": "True", "ScalingLimited": "True", "GatewayCap": "True"}.get(condition["type"], "False")
    steered = condition["type"] not in ("Ready", "UpToDate", "ScalingActive")
    return steered and condition["status"] == unwanted and condition["reason"] in STEPS


def _describe_parts(document: Document) -> Iterator[tuple[str, ...]]:
    spec, status = document.get("spec", {}), document.get("status", {})
    parts = status.get("startup", {}).get("lastParts")
    took = f"; last fetched in {parts['download']} s and loaded in {parts['load']} s" if parts else ""
    yield "source", f"{spec.get('model', {}).get('source', 'not named')}{took}"
    if (engine := status.get("engine")) is not None:
        version = f" {engine['version']}" if engine.get("version") else ""
        yield "engine", f"{engine['type']}{version}; its limits are moved by {engine['actuator']}"
    names = [name for name in (status.get("servedModel"), *status.get("servedAliases", ())) if name]
    routed = find_condition(status, "Routed")
    gateways = f"; {routed['message']}" if routed is not None and routed.get("message") else ""
    yield "routes", f"{', '.join(names) or 'no served name'} at {status.get('endpoint') or 'no endpoint'}{gateways}"
    security = spec.get("security", {})
    secrets = [security[field] for field in ("apiKeySecretRef",) if field in security] + [*security.get("apiKeys", ())]
    listed = ", ".join(f"{each.get('name')}/{each.get('key', 'key')}" for each in secrets)
    yield "keys", f"of Secrets {listed}" if listed else _OPEN


def _describe_pods(observed: Observed, spec: LLMDeploymentSpec, now: str) -> Iterator[tuple[str, ...]]:
    for pod in observed.pods:
        state, words = _describe_pod(pod, pod in observed.draining, spec, now)
        yield pod.name, state, f"{words}; restarted {pod.restarts} times" if pod.restarts else words


def _describe_pod(pod: PodView, draining: bool, spec: LLMDeploymentSpec, now: str) -> tuple[str, str]:
    if pod.has_ended:
        return "ended", f"{pod.ended_reason or pod.phase}: {pod.ended_message}".rstrip(": ")
    if draining:
        return "drains", "finishes its requests and gets no more"
    if pod.serving:
        return "serves", f"on node {pod.node}" if pod.node else f"since {pod.running_since}"
    if (stall := find_pod_stall(pod, spec, now)) is not None:
        return "stuck", f"{stall.reason}: {_without_step(stall.message, find_next_step(stall.reason, stall.message))}"
    return "starts", find_stage(pod).message
