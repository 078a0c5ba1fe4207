"""Manifests that are good, and bad ones with the error of each: checked with and without an API server."""

from typing import Any

from tests.operator.api import pod_templates


def schedule(name: str, **fields: Any) -> dict[str, Any]:
    """One of spec.autoscaling.schedules."""
    return {"name": name, "timezone": "Europe/Berlin", "days": ["Monday"], "start": "08:00", "end": "18:00", **fields}


def adapters(*each: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A fleet with these adapters, each with its name and source unless it has others."""
    engine = {"memory": {"maxAdapterMemory": "1Gi"}}
    return {"engine": engine, "adapters": [{"name": "sql", "source": "hf://org/sql", **one} for one in each], **spec}


GOOD: list[dict[str, Any]] = [
    adapters({}),
    adapters({"digest": f"sha256:{'0' * 64}"}, {"name": "org/chat:v2", "source": "s3://bucket/chat"}),
    adapters({"keys": ["team-a"]}, security={"apiKeys": [{"name": "clients"}]}),
    adapters(*({"name": f"{i}", "source": f"file:///adapters/{i}"} for i in range(64))),
    adapters({"source": "oci-archive:///images/a.tar#tag=1"}, {"name": "b", "source": "hf://org/a@v1"}),
    {},
    {"model": {"source": "file:///m", "servedName": "mistral:latest", "aliases": ["mistral", "org/m:7b-v0.3"]}},
    {"model": {"source": "file:///m", "aliases": [f"m:{i}" for i in range(16)]}},
    {"replicas": 2},
    {"autoscaling": {"maxReplicas": 2}},
    {"replicas": 2, "autoscaling": {"maxReplicas": 2, "mode": "External"}},
    {"engine": {"maxNumSeqs": 8, "maxBatchedTokens": 8}},
    {"engine": {"maxNumSeqs": 1024}},
    {"engine": {"order": "priority", "scheduling": {"pauseLowerClasses": True, "reservedSlots": 63}}},
    {"engine": {"quantization": "int8", "memory": {"preemption": "swap", "swapMemory": "2Gi"}}},
    {"engine": {"blockSize": 8}},
    {"engine": {"blockSize": 64, "kvCacheDtype": "fp8"}, "resources": {"gpu": {"count": 1}}},
    {"engine": {"kvCacheDtype": "int8"}},
    {"concurrency": {"mode": "Auto", "min": 2, "initial": 8, "max": 16}},
    {"rollout": {"maxSurge": 0, "maxUnavailable": 1}},
    {"rollout": {"maxSurge": 0}},
    {"rollout": {"maxUnavailable": 0}},
    {"budget": {"maxGPUs": 2}, "replicas": 2, "resources": {"gpu": {"count": 1}}},
    {"resources": {"limits": {"cpu": 1}}},
    {"resources": {"gpu": {"count": 1, "claimTemplateName": "one-gpu"}}},
    {"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"enabled": True, "idleSeconds": 5}}},
    {"autoscaling": {"minReplicas": 1, "maxReplicas": 8, "schedules": [schedule("day", minReplicas=2)]}},
    {"autoscaling": {"maxReplicas": 8, "schedules": [schedule("a", maxReplicas=1), schedule("b", maxReplicas=8)]}},
    {
        "autoscaling": {"maxReplicas": 4, "schedules": [schedule("day", minReplicas=4)]},
        "budget": {"maxGPUs": 8},
        "resources": {"gpu": {"count": 2}},
    },
    {"slo": {"ttftP95Milliseconds": 500, "itlP95Milliseconds": 50}},
    {"cost": {"gpuHour": "2.49"}, "resources": {"gpu": {"count": 1}}},
    {"model": {"source": "pvc://models/llama/8b.gguf"}},
    {"model": {"source": "pvc://models-1.x"}},
    {"model": {"source": "hf://org/name"}},
    {"model": {"source": "hf://org/name@refs/pr/1/file.gguf", "credentialsSecretRef": {"name": "hub"}}},
    {"model": {"source": "s3://bucket/llama/8b", "cache": {"emptyDir": {}}}},
    {"model": {"source": "gs://bucket", "cache": {"emptyDir": {"sizeLimit": "20Gi"}}}},
    {"model": {"source": f"https://host:8443/8b.gguf#sha256={'0' * 64}", "cache": {"claim": {"name": "models"}}}},
    {"model": {"source": "hf://org/name", "cache": {"hostPath": {"path": "/var/lib/models"}}}},
    {"model": {"source": "oci://ghcr.io/org/8b:v1/models", "imagePullPolicy": "Always"}},
    {"model": {"source": f"oci://localhost:5000/8b@sha256:{'0' * 64}", "credentialsSecretRef": {"name": "ghcr"}}},
    {"model": {"source": "oci-archive:///models/8b.tar#tag=v1&path=models", "cache": {"emptyDir": {}}}},
    {
        "targetRef": {"name": "chat"},
        "engine": {"runtime": {"type": "VLLM"}},
        "model": {"source": "hf://org/name"},
        "autoscaling": {"maxReplicas": 4, "mode": "Advisory"},
        "concurrency": {"mode": "Advisory", "tokenBudget": {"mode": "Advisory"}},
    },
    *pod_templates.GOOD,
]
_TARGET: dict[str, Any] = {
    "targetRef": {"name": "chat"},
    "engine": {"runtime": {"type": "VLLM"}},
    "model": {"source": "hf://org/name"},
    "autoscaling": {"maxReplicas": 4, "mode": "Advisory"},
}

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    (
        {**_TARGET, "engine": {}},
        "spec.targetRef: is {'kind': 'Deployment', 'name': 'chat', 'port': 8000}: targetRef must be unset with "
        "engine.runtime.type Paternoster",
    ),
    (
        {**_TARGET, "autoscaling": {"maxReplicas": 4}},
        "spec.autoscaling.mode: is 'Auto': autoscaling.mode must be Advisory with targetRef",
    ),
    (
        {name: value for name, value in _TARGET.items() if name != "autoscaling"},
        "spec.autoscaling.mode: is unset: autoscaling.mode must be Advisory with targetRef",
    ),
    (
        {**_TARGET, "concurrency": {"mode": "Auto"}},
        "spec.concurrency.mode: is 'Auto': concurrency.mode must be Advisory or unset with targetRef",
    ),
    (
        {**_TARGET, "concurrency": {"tokenBudget": {"mode": "Fixed"}}},
        "spec.concurrency.tokenBudget.mode: is 'Fixed': concurrency.tokenBudget.mode must be Advisory or unset with",
    ),
    (
        {"engine": {"maxNumSeqs": 8, "scheduling": {"reservedSlots": 8}}},
        "spec.engine.scheduling.reservedSlots: is 8: engine.scheduling.reservedSlots must be below engine.maxNumSeqs",
    ),
    (
        {"engine": {"order": "fair-share", "scheduling": {"pauseLowerClasses": True}}},
        "spec.engine.scheduling.pauseLowerClasses: is True: engine.scheduling.pauseLowerClasses must be false unless",
    ),
    (
        {"engine": {"order": "priority", "scheduling": {"pauseLowerClasses": True, "prefillFirst": True}}},
        "spec.engine.scheduling.pauseLowerClasses: is True: engine.scheduling.pauseLowerClasses and",
    ),
    (
        {"engine": {"scheduling": {"speculative": "draft"}}},
        "spec.engine.scheduling.draftModel: is unset: engine.scheduling.draftModel must be set if",
    ),
    (
        {"engine": {"scheduling": {"draftModel": "file:///d"}}},
        "spec.engine.scheduling.draftModel: is 'file:///d': engine.scheduling.draftModel must be set if",
    ),
    (
        {
            "engine": {"scheduling": {"speculative": "draft", "draftModel": "file:///d"}},
            "resources": {"gpu": {"count": 1}},
        },
        "spec.engine.scheduling.speculative: is 'draft': engine.scheduling.speculative must not be draft on GPUs",
    ),
    (
        {"engine": {"quantization": "int8"}, "resources": {"gpu": {"count": 1}}},
        "spec.engine.quantization: is 'int8': engine.quantization must be auto or none on GPUs",
    ),
    (
        {"engine": {"kvCacheDtype": "fp8"}},
        "spec.engine.kvCacheDtype: is 'fp8': engine.kvCacheDtype must be auto or int8 without GPUs",
    ),
    (
        {"engine": {"maxBatchedTokens": 512}, "concurrency": {"tokenBudget": {"min": 513}}},
        "spec.concurrency.tokenBudget.min: is 513: concurrency.tokenBudget.min must be at most engine.maxBatchedTokens",
    ),
    (
        {"concurrency": {"min": 9, "tokenBudget": {"min": 8}}},
        "spec.concurrency.tokenBudget.min: is 8: concurrency.tokenBudget.min must be at least concurrency.min",
    ),
    (
        {"engine": {"minPriority": 3, "maxPriority": 2}},
        "spec.engine.minPriority: is 3: engine.minPriority must be at most",
    ),
    (
        {"resources": {"gpu": {"claimTemplateName": "one-gpu"}}},
        "spec.resources.gpu.count: is 0: resources.gpu.count must say how many GPUs",
    ),
    (
        {"replicas": 2, "autoscaling": {"maxReplicas": 2}},
        "spec.replicas: is 2: replicas must be unset with autoscaling",
    ),
    ({"autoscaling": {"maxReplicas": 2, "mode": "External"}}, "spec.replicas: is unset: replicas must be set"),
    (
        {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}},
        "spec.autoscaling.minReplicas: is 5: autoscaling.minReplicas must be at most autoscaling.maxReplicas",
    ),
    (
        {"engine": {"maxBatchedTokens": 8}},
        "spec.engine.maxBatchedTokens: is 8: engine.maxBatchedTokens must be at least",
    ),
    (
        {"engine": {"blockSize": 8}, "resources": {"gpu": {"count": 1}}},
        "spec.engine.blockSize: is 8: engine.blockSize must be 16, 32 or 64 on GPUs",
    ),
    ({"concurrency": {"max": 65}}, "spec.concurrency.max: is 65: concurrency.max must be at most engine.maxNumSeqs"),
    ({"concurrency": {"min": 65}}, "spec.concurrency.min: is 65: concurrency.min must be at most concurrency.max"),
    ({"concurrency": {"initial": 65}}, "spec.concurrency.initial: is 65: concurrency.initial must lie between"),
    (
        {"rollout": {"maxSurge": 0, "maxUnavailable": 0}},
        "spec.rollout.maxSurge: is 0: rollout.maxSurge and rollout.maxUnavailable must not",
    ),
    (
        {"budget": {"maxGPUs": 1}, "replicas": 2, "resources": {"gpu": {"count": 1}}},
        "spec.budget.maxGPUs: is 1: budget.maxGPUs must allow the GPUs of the fewest replicas",
    ),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2}},
        "spec.autoscaling.minReplicas: is 0: autoscaling.minReplicas must be 0 if autoscaling.scaleToZero.enabled",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "scaleToZero": {"enabled": True}}},
        "spec.autoscaling.minReplicas: is 1: autoscaling.minReplicas must be 0 if autoscaling.scaleToZero.enabled",
    ),
    (adapters({}, {}), "spec.adapters: has sql, sql: each of adapters must have a name of its own"),
    (
        adapters({"name": "m"}, model={"source": "file:///m", "servedName": "m"}),
        "spec.adapters: has m: none of adapters must have the name of the model",
    ),
    (
        adapters({"name": "m"}, model={"source": "file:///m", "aliases": ["n", "m"]}),
        "spec.adapters: has m: none of adapters must have the name of the model",
    ),
    (
        adapters({"keys": ["a"]}),
        "spec.adapters: has sql: keys of each of adapters must be unset without security.apiKeys",
    ),
    (
        adapters({}, engine={}),
        "spec.engine.memory.maxAdapterMemory: is unset: engine.memory.maxAdapterMemory must bound",
    ),
    (
        adapters({}, model={"source": "file:///m"}, engine={"runtime": {"type": "VLLM", "image": "v"}}),
        "spec.adapters: has sql: adapters must be unset with another engine.runtime.type than Paternoster",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a", maxReplicas=1), schedule("a", maxReplicas=2)]}},
        "spec.autoscaling.schedules: has a, a: each of autoscaling.schedules must have a name of its own",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a")]}},
        "spec.autoscaling.schedules: has a: each of autoscaling.schedules must set minReplicas, maxReplicas or both",
    ),
    (
        {"autoscaling": {"maxReplicas": 9, "schedules": [schedule("a", minReplicas=3, maxReplicas=2)]}},
        "spec.autoscaling.schedules: has a: minReplicas of each of autoscaling.schedules must be at most",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a", minReplicas=3)]}},
        "spec.autoscaling.schedules: has a: bounds of each of autoscaling.schedules must lie between",
    ),
    (
        {
            "autoscaling": {"maxReplicas": 4, "schedules": [schedule("a", minReplicas=4)]},
            "budget": {"maxGPUs": 7},
            "resources": {"gpu": {"count": 2}},
        },
        "spec.autoscaling.schedules: has a: minReplicas of each of autoscaling.schedules must fit into budget.maxGPUs",
    ),
    ({"cost": {"gpuHour": "2"}}, "spec.resources.gpu.count: is 0: cost.gpuHour prices GPUs: resources.gpu.count must"),
    *(
        (
            {"model": {"source": f"pvc://models/{path}"}},
            f"spec.model.source: is 'pvc://models/{path}': model.source must name a path on its claim without",
        )
        for path in ("../secret", "a/../b", "a/..", "./a")
    ),
    (
        {"model": {"source": "file:///m", "cache": {"emptyDir": {}}}},
        "spec.model.cache: is {'emptyDir': {}}: model.cache must be unset unless model.source is hf://",
    ),
    (
        {"model": {"source": "pvc://models", "credentialsSecretRef": {"name": "hub"}}},
        "spec.model.credentialsSecretRef: is {'name': 'hub'}: model.credentialsSecretRef must be unset unless",
    ),
    (
        {"model": {"source": "oci://ghcr.io/8b:v1", "cache": {"emptyDir": {}}}},
        "spec.model.cache: is {'emptyDir': {}}: model.cache must be unset unless model.source is hf://",
    ),
    (
        {"model": {"source": "hf://org/name", "imagePullPolicy": "Never"}},
        "spec.model.imagePullPolicy: is 'Never': model.imagePullPolicy must be unset unless model.source is oci://",
    ),
    *(
        (
            {"model": {"source": "hf://org/name", "cache": cache}},
            f"spec.model.cache: is {cache}: model.cache must have exactly one of emptyDir, hostPath and claim",
        )
        for cache in ({}, {"emptyDir": {}, "claim": {"name": "a"}})
    ),
    (
        {"model": {"source": "hf://org/name", "cache": {"hostPath": {"path": "/models/../etc"}}}},
        "spec.model.cache.hostPath.path: is '/models/../etc': model.cache.hostPath.path must have no '.' and no '..'",
    ),
    *pod_templates.BROKEN_RULES,
]

BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    (adapters({"name": "a,b"}), "spec.adapters[0].name: is 'a,b': must match"),
    (adapters({"source": "hf://org/a/b.gguf"}), "spec.adapters[0].source: is 'hf://org/a/b.gguf': must match"),
    (adapters({"source": "https://host/a"}), "spec.adapters[0].source: is 'https://host/a': must match"),
    (adapters({"digest": "md5:1"}), "spec.adapters[0].digest: is 'md5:1': must match"),
    ({"engine": {"order": "deadline"}}, "spec.engine.order: is 'deadline': was removed: use 'fcfs'"),
    (
        {"engine": {"memory": {"preemption": "auto"}}},
        "spec.engine.memory.preemption: is 'auto': was removed: use 'swap'",
    ),
    ({"engine": {"memory": {"swapMemory": "0"}}}, "spec.engine.memory.swapMemory: is '0': must match"),
    ({"engine": {"memory": {"swapMemory": "500m"}}}, "spec.engine.memory.swapMemory: is '500m': must match"),
    (
        {"engine": {"tenants": {"weights": [{"name": "a=b", "percent": 1}]}}},
        "spec.engine.tenants.weights[0].name: is 'a=b': must match",
    ),
    (
        {"engine": {"tenants": {"weights": [{"name": "a", "percent": 1}, {"name": "a", "percent": 2}]}}},
        "spec.engine.tenants.weights: is [",
    ),
    (
        {"engine": {"maxSeqs": 3}},
        "spec.engine.maxSeqs: unknown field: allowed here: batchInvariant, blockSize,",
    ),
    ({"tolerations": [{"taste": 1}]}, "spec.tolerations[0].taste: unknown field: allowed here: effect, key,"),
    ({"engine": {"maxNumSeqs": "x"}}, "spec.engine.maxNumSeqs: is 'x': must be a valid integer"),
    ({"engine": {"maxNumSeqs": 0}}, "spec.engine.maxNumSeqs: is 0: must be at least 1"),
    ({"engine": {"dtype": "int3"}}, "spec.engine.dtype: is 'int3': must be one of 'auto', 'bfloat16' or 'float32'"),
    ({"engine": {"kvCacheMemory": "much"}}, "spec.engine.kvCacheMemory: is 'much': must match"),
    *(
        ({"model": {"source": source}}, f"spec.model.source: is '{source}': must match")
        for source in (
            "llama",
            "hf://llama",
            "hf:///org/name",
            "hf://org/name?x=1",
            "s3://",
            "gs:///8b",
            "http://host/8b.gguf",
            "https://host",
            "https://host/8b.gguf?signature=x",
            "oci://registry/8b",
            "oci://ghcr.io",
            "oci-archive:///models/8b.tar?x",
        )
    ),
    (
        {"model": {"source": "hf://org/name", "cache": {"emptyDir": {"sizeLimit": "0"}}}},
        "spec.model.cache.emptyDir.sizeLimit: is '0': must match",
    ),
    (
        {"model": {"source": "hf://org/name", "cache": {"hostPath": {"path": "models"}}}},
        "spec.model.cache.hostPath.path: is 'models': must match",
    ),
    ({"model": {"source": "hf://org/name", "cache": {"nfs": {}}}}, "spec.model.cache.nfs: unknown field: allowed here"),
    ({"model": {"source": "pvc:///path"}}, "spec.model.source: is 'pvc:///path': must match"),
    ({"model": {"source": "pvc://Claim/path"}}, "spec.model.source: is 'pvc://Claim/path': must match"),
    ({"model": {}}, "spec.model.source: is missing: it is required"),
    ({"autoscaling": {}}, "spec.autoscaling.maxReplicas: is missing: it is required"),
    ({"replicas": -1}, "spec.replicas: is -1: must be at least 0"),
    (
        {"autoscaling": {"maxReplicas": 2, "scaleToZero": {"coldRequestPolicy": "Drop"}}},
        "spec.autoscaling.scaleToZero.coldRequestPolicy: is 'Drop': must be one of 'Hold' or 'Reject'",
    ),
    (
        {"model": {"source": "file:///m", "aliases": ["a b"]}},
        "spec.model.aliases[0]: is 'a b': must match",
    ),
    (
        {"model": {"source": "file:///m", "aliases": ["m" * 129]}},
        "spec.model.aliases[0]: is 'mmm",
    ),
    (
        {"model": {"source": "file:///m", "aliases": [f"m{i}" for i in range(17)]}},
        "spec.model.aliases: is ",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "scaleToZero": {"idleSeconds": 0}}},
        "spec.autoscaling.scaleToZero.idleSeconds: is 0: must be at least 1",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a", maxReplicas=1, start="8:00")]}},
        "spec.autoscaling.schedules[0].start: is '8:00': must match",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a", maxReplicas=1, days=["Mo"])]}},
        "spec.autoscaling.schedules[0].days[0]: is 'Mo': must be one of 'Monday', 'Tuesday'",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "schedules": [schedule("a", maxReplicas=1, timezone="../etc")]}},
        "spec.autoscaling.schedules[0].timezone: is '../etc': must match",
    ),
    ({"slo": {"ttftP95Milliseconds": 0}}, "spec.slo.ttftP95Milliseconds: is 0: must be at least 1"),
    ({"cost": {"gpuHour": "2,49"}}, "spec.cost.gpuHour: is '2,49': must match"),
    ({"cost": {"gpuHour": "1", "currency": "usd"}}, "spec.cost.currency: is 'usd': must match"),
    *pod_templates.BAD_FIELDS,
]
UNSEEN_BY_A_SCHEMA: list[tuple[dict[str, Any], str]] = [
    ({"engine": {"extraArgs": ["--turbo"]}}, "spec.engine.extraArgs: is ['--turbo']: unrecognized arguments: --turbo"),
    (
        {"engine": {"extraArgs": ["--max-num-seqs", "8"]}},
        "spec.engine.extraArgs: is ['--max-num-seqs', '8']: --max-num-seqs must not be here: use spec.engine",
    ),
    *(
        ({"model": {"source": source}}, f"spec.model.source: is '{source}': {message}")
        for source, message in (
            ("hf://org/na..me", "'na..me' is no name of the hub; allowed: hf://org/name, "),
            ("hf://org/name@../main", "'..' is no branch, tag or commit"),
            ("oci://ghcr.io/8b:v1/../y", "'../y' is no path below it"),
            ("hf://org/name/model.bin", "'model.bin' must be a .gguf file"),
            ("s3://bucket/../8b", "'../8b' is no path below it"),
            ("https://me@host/8b.gguf", "a model's https address must have a host, and neither user nor password"),
        )
    ),
    *pod_templates.INSIDE_OF_OBJECTS,
]
