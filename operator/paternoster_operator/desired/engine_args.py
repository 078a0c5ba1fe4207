"""What a manifest says of its engines, as their start-up settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract import labels
from paternoster_contract.quantity import parse_quantity
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.scheduling import OrderName
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.key_volumes import ADMIN, API, key_folder, key_sources
from paternoster_operator.desired.model_source import engine_source
from paternoster_operator.desired.resources import count_gpus
from paternoster_operator.engines.adapter import RuntimeType

SECURITY_CONTEXT: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of a pod, where the installation has no other."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What the engines of all fleets have in common."""

    engine_image: str = labels.DEFAULT_ENGINE_IMAGE
    """Where the resource names none."""
    fetch_image: str = labels.DEFAULT_FETCH_IMAGE
    """Of the init container that fetches a model."""
    behind_gateway: bool = False
    """Engines answer only to the gateway's key."""
    vllm_metrics: bool = False
    """They export their core metrics under vLLM's names, too."""
    ipv6: bool = False
    """Pods have IPv6 addresses first."""
    security_context: Mapping[str, Any] = field(default_factory=lambda: dict(SECURITY_CONTEXT))
    """Security context of every pod."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets, of each fleet's namespace, that nodes pull images with, besides those that the resource names."""


ALONE = Installation()
"""Nothing but what the resource says."""


def engine_args(resource: LLMDeployment, installation: Installation = ALONE) -> EngineArgs:
    """The settings of each engine. Live cap and token budget are not in them: they go through the admin API."""
    spec = resource.spec
    asks_for = key_sources(resource, behind_gateway=installation.behind_gateway)
    devices = count_gpus(spec)
    args = EngineArgs(
        model=engine_source(spec),
        served_model_name=resource.served_names,
        chat_template=spec.model.chat_template,
        tool_parser=spec.model.tool_parser,
        tool_template=spec.model.tool_template,
        reasoning_parser=spec.model.reasoning_parser,
        generation_config=spec.model.generation_config,
        task=spec.model.task or "auto",
        pooling=spec.model.pooling or "auto",
        matryoshka=bool(spec.model.matryoshka),
        host=_listening_host(spec, installation),
        port=labels.ENGINE_PORT,
        admin_port=labels.ADMIN_PORT,
        api_keys=key_folder(API) if API in asks_for else None,
        admin_keys=key_folder(ADMIN),
        # Its API has the gateway's key alone then, so that no other client can claim an identity.
        identity_header=installation.behind_gateway,
        # A pod that waited for a GPU and does not see it must say so, and not serve from its CPUs.
        device="cuda" if devices else "auto",
        threads=_count_threads(spec),
        tensor_parallel_size=max(1, devices),
        order=spec.engine.order or _default_order(spec),
        drain_timeout=spec.drain.timeout_seconds,
        vllm_metrics=installation.vllm_metrics if spec.engine.vllm_metrics is None else spec.engine.vllm_metrics,
        **_engine_settings(spec.engine),
        **spec.engine.http.to_settings(),
    )
    return args.replace(**spec.engine.extra_settings()) if spec.engine.extra_args else args


def _listening_host(spec: LLMDeploymentSpec, installation: Installation) -> str:
    """Every address of both families; of the pod's own where the engine is not ours, as for some ``::`` is IPv6 alone.

    Empty and not ``::``, which engines of 0.2.0, that a manifest may pin, take for IPv6 alone.
    """
    if spec.engine.runtime.type is RuntimeType.PATERNOSTER:
        return ""
    return "::" if installation.ipv6 else "0.0.0.0"


def _engine_settings(engine: Engine) -> dict[str, Any]:
    """Settings of ``spec.engine`` that need nothing else of the manifest."""
    scheduling, memory, tenants = engine.scheduling, engine.memory, engine.tenants
    return {
        "dtype": engine.dtype,
        "quantization": engine.quantization,
        "batch_invariant": engine.batch_invariant,
        "max_num_seqs": engine.max_num_seqs,
        "max_model_len": engine.max_model_len,
        "max_batched_tokens": engine.max_batched_tokens,
        "max_queued_requests": engine.max_queued_requests,
        "parse_special_tokens": engine.parse_special_tokens,
        "disable_any_whitespace": engine.disable_any_whitespace,
        "cache_isolation": engine.cache_isolation.lower(),
        "min_priority": engine.min_priority,
        "max_priority": engine.max_priority,
        "prefill_first": scheduling.prefill_first,
        "await_prefix": scheduling.await_prefix,
        "admission": scheduling.admission,
        "victim": scheduling.victim,
        "speculative": scheduling.speculative,
        "draft_model": scheduling.draft_model,
        "priority_aging": scheduling.priority_aging_seconds,
        "pause_lower_classes": scheduling.pause_lower_classes,
        "reserved_slots": scheduling.reserved_slots,
        **({} if engine.block_size is None else {"block_size": engine.block_size}),
        "kv_cache_memory": None if engine.kv_cache_memory is None else int(parse_quantity(engine.kv_cache_memory)),
        "kv_cache_dtype": engine.kv_cache_dtype,
        "prefix_cache": engine.prefix_cache,
        "watermark_percent": memory.watermark_percent,
        "gpu_memory_utilization": memory.gpu_utilization_percent / 100,
        "preemption": memory.preemption,
        "swap_memory": int(parse_quantity(memory.swap_memory)),
        "max_queued_per_tenant": tenants.max_queued,
        "max_running_per_tenant": tenants.max_running,
        "tenant_tokens_per_second": tenants.tokens_per_second,
        "tenant_token_burst": tenants.token_burst,
        "tenant_weights": {weight.name: weight.percent / 100 for weight in tenants.weights},
    }


def _default_order(spec: LLMDeploymentSpec) -> OrderName | None:
    """Tenants share fairly where keys name them; engines of other types have no tenants, and no such order."""
    ours = spec.engine.runtime.type is RuntimeType.PATERNOSTER
    return "fair-share" if spec.security.api_keys and ours else None


def _count_threads(spec: LLMDeploymentSpec) -> int | None:
    cpu = spec.resources.limits.get("cpu")
    return None if cpu is None else max(1, math.ceil(parse_quantity(cpu)))
