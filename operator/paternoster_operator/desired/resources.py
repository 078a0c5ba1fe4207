"""What an engine's container asks for, with what is known where the manifest says nothing."""

import math
from collections.abc import Mapping
from typing import Any

from paternoster_contract.labels import ENGINE_CONTAINER
from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.pod.owned import (
    GPU_CLAIM,
    SHARED_MEMORY_FOLDER,
    SHARED_MEMORY_VOLUME,
    TMP_FOLDER,
    TMP_VOLUME,
)
from paternoster_operator.api.pod.template import PodTemplate
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.pod_parts import PodParts

CPU_KV_CACHE = "512Mi"
"""KV pool that engines make on CPUs unless a size is set."""
MEMORY = "memory"
BASE_MEMORY = "1Gi"
"""What an engine takes beside its KV pool: 1.04 GiB at the highest with SmolLM2-135M on a CPU, 0.9 GiB while it serves.
There is no default limit: models differ, and an engine that is killed serves no request."""
STORAGE = "ephemeral-storage"
STORAGE_REQUEST, STORAGE_LIMIT = "128Mi", "4Gi"
"""For /tmp, where a serving engine has 4 KiB, and the logs, of which kubelets keep 50 MiB. The limit is far above, for
compiled kernels: who exceeds it is evicted."""
SHARED_MEMORY = "1Gi"
"""For what several GPUs, or processes of an engine that is not ours, tell each other through /dev/shm: what NVIDIA's
guide to NCCL gives a container, in place of the 64 MiB of container runtimes; vLLM on CPUs needs 160 MiB. It counts as
memory of the container as far as it is used."""

SLOW_READ = "64Mi"
"""Bytes a second: of a volume over the network that several pods read. A model that is read slower needs
``engine.startupTimeoutSeconds``."""
GPU_MEMORY = "80Gi"
"""For how much of a model a GPU is taken; the manifest does not say which GPU it is."""
SHORTEST_STARTUP_TIMEOUT, LONGEST_STARTUP_TIMEOUT = 1800, 86_400


def build_resources(spec: LLMDeploymentSpec) -> dict[str, Any]:
    """Requests, limits and claims of the container.

    A resource that the manifest names, as request or limit, is left as it is there: half of a pair that is added may
    contradict the half that is given.
    """
    gpu = spec.resources.gpu
    requests, limits = dict(spec.resources.requests), dict(spec.resources.limits)
    named = {*requests, *limits}
    if MEMORY not in named:
        requests[MEMORY] = _default_memory(spec)
    if STORAGE not in named:
        requests[STORAGE] = STORAGE_REQUEST
        if not _unbounded_cache(spec):
            limits[STORAGE] = STORAGE_LIMIT
    claims = []
    if gpu.claim_template_name is not None:
        claims.append({"name": GPU_CLAIM})
    elif gpu.count:
        limits[gpu.resource_name] = str(gpu.count)
    parts = {"requests": requests, "limits": limits, "claims": claims}
    return {name: value for name, value in parts.items() if value}


def build_fetch_resources(spec: LLMDeploymentSpec, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Resources of the container that fetches the model: the ``engine``'s less its devices, and room for the model.

    A pod asks for the larger of the two, as they run one after the other: so this costs nothing, meets every quota that
    the engine meets, and keeps the pod's class of service.
    """
    device, room = spec.resources.gpu.resource_name, spec.model.cache_limit
    found = {}
    for part in ("requests", "limits"):
        amounts = {name: amount for name, amount in engine.get(part, {}).items() if name != device}
        if room is not None and STORAGE in amounts:
            amounts[STORAGE] = str(math.ceil(parse_quantity(amounts[STORAGE]) + parse_quantity(room)))
        found[part] = amounts
    return {part: amounts for part, amounts in found.items() if amounts}


def _unbounded_cache(spec: LLMDeploymentSpec) -> bool:
    """Whether models may take any amount of the pod's own storage: a limit of that would evict it."""
    cache = spec.model.cache
    return spec.model.remote and (cache is None or cache.empty_dir is not None) and spec.model.cache_limit is None


def scratch_limit(spec: LLMDeploymentSpec) -> str | None:
    """Size of the emptyDir for /tmp; None for any."""
    given = spec.resources
    return given.limits.get(STORAGE) if STORAGE in {**given.requests, **given.limits} else STORAGE_LIMIT


def scratch_parts(spec: LLMDeploymentSpec) -> PodParts:
    """The emptyDir for /tmp, as large as the container's files may get in all."""
    limit = scratch_limit(spec)
    folder = {} if limit is None else {"sizeLimit": limit}
    return PodParts(
        volumes=[{"name": TMP_VOLUME, "emptyDir": folder}], mounts=[{"name": TMP_VOLUME, "mountPath": TMP_FOLDER}]
    )


def shared_memory_parts(spec: LLMDeploymentSpec) -> PodParts:
    """The emptyDir for /dev/shm, where processes of an engine need it and the template brings none.

    Those are the ranks of several GPUs, and whatever processes another engine has: vLLM's API server and worker do not
    start with the 64 MiB of container runtimes.
    """
    needed = spec.resources.num_gpus > 1 or spec.engine.runtime.is_foreign
    if not needed or _brings_shared_memory(spec.pod_template):
        return PodParts()
    folder = {"medium": "Memory", "sizeLimit": SHARED_MEMORY}
    return PodParts(
        volumes=[{"name": SHARED_MEMORY_VOLUME, "emptyDir": folder}],
        mounts=[{"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER}],
    )


def host_kv_cache(spec: LLMDeploymentSpec) -> str | None:
    """KV pool in the memory of the pod; None where GPUs have it."""
    return None if spec.resources.num_gpus else spec.engine.kv_cache_memory or CPU_KV_CACHE


def startup_timeout(spec: LLMDeploymentSpec) -> int:
    """Seconds that an engine may take to start: as the manifest says, or what reading all it has room for takes."""
    if spec.engine.startup_timeout_seconds is not None:
        return spec.engine.startup_timeout_seconds
    given = spec.resources
    memory = max(parse_quantity(amounts.get(MEMORY, "0")) for amounts in (given.requests, given.limits))
    room = max(memory, given.num_gpus * parse_quantity(GPU_MEMORY))
    return min(max(SHORTEST_STARTUP_TIMEOUT, math.ceil(room / parse_quantity(SLOW_READ))), LONGEST_STARTUP_TIMEOUT)


def _brings_shared_memory(given: PodTemplate) -> bool:
    """Whether the template sets ``/dev/shm`` of the engine."""
    return bool(given.spec.get("hostIPC")) or any(
        mount["mountPath"] == SHARED_MEMORY_FOLDER
        for container in given.spec.get("containers", ())
        if container["name"] == ENGINE_CONTAINER
        for mount in container.get("volumeMounts", ())
    )


def _default_memory(spec: LLMDeploymentSpec) -> str:
    needed = parse_quantity(BASE_MEMORY) + parse_quantity(host_kv_cache(spec) or "0")
    if spec.engine.memory.preemption == "swap":
        needed += parse_quantity(spec.engine.memory.swap_memory)
    if not spec.resources.num_gpus:
        needed += parse_quantity(spec.engine.memory.max_adapter_memory or "0")
    return f"{math.ceil(needed / parse_quantity('1Mi'))}Mi"
