"""Read a pod's document into a :class:`PodView`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from paternoster_contract import labels
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.limits import MAX_ADAPTERS
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.pods.log_lines import find_cause_line
from paternoster_operator.pods.placement import volume_claims
from paternoster_operator.pods.view import (
    MAX_QUEUED_REQUESTS,
    PREPARING,
    Disruption,
    Ended,
    EngineAddress,
    PodView,
)

UNBOUNDED_QUEUE = 2**20
"""Requests that may wait in an engine of somebody else's flags."""

LONGEST_MESSAGE = 2048
"""Characters of a message of a status that are read: some are matched in a time by the square of their length."""
LONGEST_TERMINATION = 4096
"""Characters of a container's last message: as many as Kubernetes keeps of its log."""


def read_message(document: Mapping[str, Any]) -> str:
    """The message of a status or one of its conditions; empty where it has none."""
    text: str = document.get("message") or ""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def read_target_pod(pod: Mapping[str, Any], engine: EngineAddress) -> PodView:
    """A pod that the operator did not make; any of its containers may have the engine, and no annotation drains it."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    container = _find_by_port(spec, engine.port)
    url = _join_url(status.get("podIP"), engine.port)
    return replace(
        read_pod(pod),
        url=url,
        admin_url=url,
        drain_wanted=False,
        drained_since=None,
        capacity=_read_number(container, "--max-num-seqs"),
        queue=UNBOUNDED_QUEUE,
        engine_type=engine.type,
        served_names=(),
    )


def _find_by_port(spec: Mapping[str, Any], port: int) -> Mapping[str, Any]:
    """The container that declares the port; the first one where none does."""
    none: Mapping[str, Any] = {}
    containers = spec.get("containers", [])
    declaring = (each for each in containers if port in (one.get("containerPort") for one in each.get("ports", ())))
    return next(declaring, containers[0] if containers else none)


def read_pod(pod: Mapping[str, Any]) -> PodView:
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    container = _find_awaited(containers)
    waiting = container.get("state", {}).get("waiting")
    scheduled = conditions.get("PodScheduled", {})
    if waiting is None and scheduled.get("status") == "False":
        waiting = scheduled
    failed = status.get("phase") == "Failed"
    restarts = sum(container.get("restartCount", 0) for container in containers)
    ready = conditions.get("Ready", {})
    resources = _find_resources(spec, container.get("name"))
    engine_type = read_engine_type(metadata.get("annotations", {}).get(labels.ENGINE_TYPE))
    return PodView(
        name=metadata["name"],
        url=_engine_url(spec, status, labels.ENGINE_PORT_NAME),
        admin_url=_engine_url(spec, status, labels.ADMIN_PORT_NAME)
        or _engine_url(spec, status, labels.ENGINE_PORT_NAME),
        phase=status.get("phase", "Pending"),
        ready=ready.get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=restarts,
        waiting_reason=None if waiting is None else waiting.get("reason"),
        message="" if waiting is None else read_message(waiting),
        container=container.get("name", labels.ENGINE_CONTAINER),
        running_since=container.get("state", {}).get("running", {}).get("startedAt"),
        ended=_find_end(container, engine_type),
        requests=resources.get("requests", {}),
        limits=resources.get("limits", {}),
        created=metadata.get("creationTimestamp"),
        template=metadata.get("labels", {}).get(labels.TEMPLATE_HASH, ""),
        missing_claim=_missing_claim(spec, status),
        drain_wanted=metadata.get("annotations", {}).get(labels.DRAIN) == "true",
        drained_since=_read_timestamp(metadata.get("annotations", {}).get(labels.SCALE_DOWN, "")),
        capacity=_read_number(_find_engine(spec), "--max-num-seqs"),
        # The second is vLLM's.
        queue=_read_number(_find_engine(spec), "--max-queued-requests")
        or _read_number(_find_engine(spec), "--max-num-queued-reqs")
        or MAX_QUEUED_REQUESTS,
        engine_type=engine_type,
        upstream_model=metadata.get("annotations", {}).get(labels.UPSTREAM_MODEL, "")[:LONGEST_MESSAGE],
        served_names=tuple(_flag_values(_find_engine(spec), "--served-model-name")),
        lora_adapters=_read_lora_adapters(metadata.get("annotations", {}).get(labels.LORA_ADAPTERS, ""), restarts),
        startup_seconds=None if restarts else _startup_seconds(metadata, ready),
        download_seconds=_download_seconds(status),
        ended_reason=status.get("reason", "") if failed else "",
        ended_message=read_message(status) if failed else "",
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates", ())),
        scheduled=scheduled.get("status") == "True" or "nodeName" in spec,
        node=spec.get("nodeName", ""),
        node_silent=_is_node_silent(status, conditions),
        volume_claims=volume_claims(spec),
        readiness_gate=read_message(ready) if ready.get("reason") == "ReadinessGatesNotReady" else "",
        disruption=_read_disruption(status, conditions),
        spec=spec,
    )


def write_lora_adapters(restarts: int, names: Sequence[str]) -> str:
    """The annotation of a pod whose engine, after ``restarts``, has loaded the adapters ``names``: a next run has none.

    Served names have no comma.
    """
    return f"{restarts}:{','.join(names)}"


def _read_lora_adapters(text: str, restarts: int) -> tuple[str, ...]:
    run, _, names = text.partition(":")
    return tuple(filter(None, names.split(",")))[:MAX_ADAPTERS] if run == str(restarts) else ()


def _is_node_silent(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the node controller took the pod's readiness, because its node's kubelet reports nothing.

    It sets ``Ready`` alone. A kubelet that does so has containers that are not ready, or names the readiness gates.
    """
    ready = conditions.get("Ready", {})
    containers_ready = conditions.get("ContainersReady", {}).get("status") == "True"
    unready = ready.get("status") in ("False", "Unknown") and ready.get("reason") != "ReadinessGatesNotReady"
    return status.get("phase") == "Running" and containers_ready and unready


def _read_timestamp(text: str) -> str | None:
    """The text where it is a time with a zone; None where it is anything else."""
    try:
        return text if datetime.fromisoformat(text).tzinfo is not None else None
    except ValueError:
        return None


def read_engine_type(name: str | None) -> RuntimeType:
    """Ours where there is no name, or one that only another release has."""
    return RuntimeType(name) if name in list(RuntimeType) else RuntimeType.PATERNOSTER


def _read_number(engine: Mapping[str, Any], flag: str) -> int | None:
    """The number that a flag of the engine's command has; None where it has none that an engine would accept."""
    text = next(_flag_values(engine, flag), "")
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None


def _flag_values(engine: Mapping[str, Any], name: str) -> Iterator[str]:
    """The values of a flag that the engine's command has once or several times, as ``Settings.to_flags`` writes it."""
    words = [*engine.get("command", []), *engine.get("args", [])]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            yield following
        elif word.startswith(f"{name}="):
            yield word.removeprefix(f"{name}=")


def _find_engine(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine's container, whatever runs beside it."""
    none: Mapping[str, Any] = {}
    return next((each for each in spec.get("containers", []) if each["name"] == labels.ENGINE_CONTAINER), none)


def _missing_claim(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    made = {claim["name"] for claim in status.get("resourceClaimStatuses", [])}
    wanted = {claim["name"]: claim.get("resourceClaimTemplateName", "") for claim in spec.get("resourceClaims", [])}
    return next((template for name, template in wanted.items() if name not in made), "")


def _startup_seconds(metadata: Mapping[str, Any], ready: Mapping[str, Any]) -> float | None:
    created, since = metadata.get("creationTimestamp"), ready.get("lastTransitionTime")
    if ready.get("status") != "True" or created is None or since is None:
        return None
    # Two clocks wrote these, the API server's and the node's.
    return max(0.0, (datetime.fromisoformat(since) - datetime.fromisoformat(created)).total_seconds())


def _download_seconds(status: Mapping[str, Any]) -> float:
    containers: Sequence[Mapping[str, Any]] = status.get("initContainerStatuses", [])
    none: Mapping[str, Any] = {}
    ran = next((each.get("state", {}) for each in containers if each.get("name") == labels.MODEL_CONTAINER), none)
    return _seconds_between(ran.get("terminated", {})) or 0.0


def _find_awaited(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first container that fails, or else the first one that is not ready.

    Containers start in this order, and an init container that has succeeded is ready.
    """
    none: Mapping[str, Any] = {}
    awaited = [each for each in containers if not each.get("ready")]
    failing = (each for each in awaited if _has_failed(each))
    return next(failing, awaited[0] if awaited else containers[-1] if containers else none)


def _has_failed(container: Mapping[str, Any]) -> bool:
    waiting = container.get("state", {}).get("waiting", {}).get("reason", "")
    ended = _find_end(container)
    return waiting not in ("", *PREPARING) or (ended is not None and ended.status != 0)


def _read_disruption(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Disruption | None:
    found = conditions.get("DisruptionTarget", {})
    evicted = status.get("phase") == "Failed" and status.get("reason") == "Evicted"
    if found.get("status") != "True" and not evicted:
        return None
    reason = "Evicted" if evicted else found.get("reason", "")
    message = read_message(status if evicted else found)
    return Disruption(reason, message, found.get("lastTransitionTime") or status.get("startTime") or "")


def _find_resources(spec: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """Resources of the container called so; of the first before the kubelet reports any."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])] if name else spec.get("containers", [])
    found: Mapping[str, Any] = next((c for c in containers if name is None or c.get("name") == name), {})
    resources: Mapping[str, Any] = found.get("resources", {})
    return resources


def _find_end(container: Mapping[str, Any], engine_type: RuntimeType = RuntimeType.PATERNOSTER) -> Ended | None:
    """Now, or else the time before."""
    states = (container.get("state", {}), container.get("lastState", {}))
    ended = next((state["terminated"] for state in states if "terminated" in state), None)
    if ended is None:
        return None
    # The kubelet keeps the end of the log as the message.
    lines = ended.get("message", "")[-LONGEST_TERMINATION:].strip().splitlines()
    is_engine = container.get("name", labels.ENGINE_CONTAINER) == labels.ENGINE_CONTAINER
    line = find_cause_line(engine_type if is_engine else RuntimeType.PATERNOSTER, lines)
    return Ended(ended.get("exitCode", 0), ended.get("reason", ""), line, _seconds_between(ended))


def _seconds_between(terminated: Mapping[str, Any]) -> float | None:
    began, finished = (terminated.get(key) for key in ("startedAt", "finishedAt"))
    if began is None or finished is None:
        return None
    return max(0.0, (datetime.fromisoformat(finished) - datetime.fromisoformat(began)).total_seconds())


def _engine_url(spec: Mapping[str, Any], status: Mapping[str, Any], port_name: str) -> str | None:
    ports = _find_engine(spec).get("ports", [])
    return _join_url(
        status.get("podIP"), next((port["containerPort"] for port in ports if port.get("name") == port_name), None)
    )


def _join_url(address: str | None, port: int | None) -> str | None:
    if not address or port is None:
        return None
    return join_base_url(address, port)
