"""What an engine's container asks for, with what is known where the manifest says nothing."""

import math
from typing import Any

from paternoster_operator.api.pod.owned import GPU_CLAIM
from paternoster_operator.api.quantity import quantity
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec

CPU_KV_CACHE = "512Mi"
"""KV pool that engines make on CPUs unless they are told another size."""
MEMORY = "memory"
BASE_MEMORY = "1Gi"
"""What an engine takes beside its KV pool: 1.04 GiB at the highest with SmolLM2-135M on a CPU, 0.9 GiB while it serves.
There is no default limit: models differ, and an engine that is killed serves nobody."""
STORAGE = "ephemeral-storage"
STORAGE_REQUEST, STORAGE_LIMIT = "128Mi", "4Gi"
"""For /tmp, where a serving engine has 4 KiB, and the logs, of which kubelets keep 50 MiB. The limit is far above, for
compiled kernels: who exceeds it is evicted."""
SHARED_MEMORY = "1Gi"
"""For what several GPUs tell each other through /dev/shm: what NVIDIA's guide to NCCL gives a container, in place of
the 64 MiB of container runtimes. It counts as memory of the container as far as it is used."""


def build_resources(spec: LLMDeploymentSpec) -> dict[str, Any]:
    """Requests, limits and claims of the container.

    A resource that the manifest names, as request or limit, is left as it is there: half of a pair that is added may
    contradict the half that is given.
    """
    gpu = spec.resources.gpu
    requests, limits = dict(spec.resources.requests), dict(spec.resources.limits)
    named = {*requests, *limits}
    if MEMORY not in named:
        requests[MEMORY] = _memory(spec)
    if STORAGE not in named:
        requests[STORAGE], limits[STORAGE] = STORAGE_REQUEST, STORAGE_LIMIT
    claims = []
    if gpu.claim_template_name is not None:
        claims.append({"name": GPU_CLAIM})
    elif gpu.count:
        limits[gpu.resource_name] = str(gpu.count)
    parts = {"requests": requests, "limits": limits, "claims": claims}
    return {name: value for name, value in parts.items() if value}


def scratch_volume(spec: LLMDeploymentSpec) -> dict[str, Any]:
    """The emptyDir for /tmp, as large as the container's files may get in all."""
    limit = build_resources(spec).get("limits", {}).get(STORAGE)
    return {} if limit is None else {"sizeLimit": limit}


def shared_memory_volume() -> dict[str, Any]:
    """The emptyDir for /dev/shm."""
    return {"medium": "Memory", "sizeLimit": SHARED_MEMORY}


def gpus(spec: LLMDeploymentSpec) -> int:
    """GPUs of an engine: it has a rank for each, as it uses all of them."""
    gpu = spec.resources.gpu
    return gpu.count or int(quantity(spec.resources.limits.get(gpu.resource_name, "0")))


def host_kv_cache(spec: LLMDeploymentSpec) -> str | None:
    """KV pool in the memory of the pod; None where GPUs have it."""
    return None if gpus(spec) else spec.engine.kv_cache_memory or CPU_KV_CACHE


def _memory(spec: LLMDeploymentSpec) -> str:
    needed = quantity(BASE_MEMORY) + quantity(host_kv_cache(spec) or "0")
    if spec.engine.memory.preemption == "swap":
        needed += quantity(spec.engine.memory.swap_memory)
    return f"{math.ceil(needed / quantity('1Mi'))}Mi"
