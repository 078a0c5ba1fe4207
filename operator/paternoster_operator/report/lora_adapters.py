"""Report a fleet's adapters (LoRA): how many replicas have each, and why others do not. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_contract.stats import EngineStats
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observed import Observed

LOADING, FAILED = "Loading", "LoadFailed"
_NO_ADAPTERS = (
    "its engine reports no adapters: engine.memory.maxAdapterMemory must be above 0, and its image of a release that "
    "loads them"
)


def describe_lora_adapters(resource: LLMDeployment, observed: Observed) -> list[dict[str, Any]]:
    """``status.adapters``, in the order of the manifest."""
    claimed = None if observed.lora_adapters is None else {adapter.name for adapter in observed.lora_adapters}
    samples = {pod.name: observed.samples[pod.name] for pod in observed.serving if pod.name in observed.samples}
    found = []
    for adapter in resource.spec.adapters:
        if claimed is not None and adapter.name not in claimed:
            reason, why = observed.unnamed or ("NoServedName", "the fleet does not have its name")
            found.append({"name": adapter.name, "replicas": 0, "reason": reason, "message": why})
        else:
            found.append(_describe_adapter(adapter, samples, len(observed.serving)))
    return found


def _describe_adapter(adapter: ModelAdapter, samples: Mapping[str, EngineStats], serving: int) -> dict[str, Any]:
    replicas, faults, older = 0, list[str](), 0
    for pod, sample in samples.items():
        report = next((each for each in sample.adapters or () if each.name == adapter.name), None)
        if report is not None and report.ready:
            replicas += 1
        if sample.adapters is None:
            faults.append(f"{pod}: {_NO_ADAPTERS}")
        elif report is None or report.version != adapter.version:
            older += 1
        elif report.fault:
            older_serves = "; the version before it serves" if report.ready else ""
            faults.append(f"{pod}: {report.fault}{older_serves}")
        elif report.loading:
            older += 1
    status: dict[str, Any] = {"name": adapter.name, "replicas": replicas}
    if faults:
        return status | {"reason": FAILED, "message": faults[0]}
    if older or len(samples) < serving or not serving:
        return status | {"reason": LOADING, "message": f"on {replicas} of {serving} replicas"}
    return status


def lora_condition(adapters: Sequence[Mapping[str, Any]]) -> tuple[bool, str, str]:
    """Whether every replica has all ``adapters`` of a status, with reason and message: the first failing one's."""
    broken = [each for each in adapters if each.get("reason", LOADING) != LOADING]
    waiting = [each for each in adapters if each.get("reason") == LOADING]
    for kind in (broken, waiting):
        if kind:
            more = f"; and {len(kind) - 1} more" if len(kind) > 1 else ""
            return False, kind[0]["reason"], f"{kind[0]['name']}: {kind[0]['message']}{more}"
    return True, "AllLoaded", f"{len(adapters)} adapters are on all replicas"
