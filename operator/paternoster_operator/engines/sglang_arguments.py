"""The settings of an engine as SGLang's flags, and the fields that SGLang cannot honour."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.adapter import Actuator, Capabilities, Continuation, Launch, Refusal, RuntimeType
from paternoster_operator.engines.vllm_arguments import (
    HTTP_DEFAULTS,
    find_owned,
    model_folder,
    other_than,
    value_of,
    write_flags,
)

FLAGS: Mapping[str, Callable[[Any], list[str]]] = {
    "model": lambda model: ["--model-path", model_folder(model)],
    "served_model_name": lambda names: ["--served-model-name", names[0]] if names else [],
    "host": value_of("host"),
    "port": value_of("port"),
    "generation_config": lambda value: ["--sampling-defaults", "openai"] if value == "none" else [],
    "dtype": other_than("auto", "dtype"),
    "tensor_parallel_size": other_than(1, "tensor-parallel-size"),
    "max_num_seqs": value_of("max-running-requests"),
    "max_model_len": value_of("context-length"),
    "max_batched_tokens": value_of("chunked-prefill-size"),
    "max_queued_requests": value_of("max-queued-requests"),
    "block_size": value_of("page-size"),
    "kv_cache_dtype": lambda value: ["--kv-cache-dtype", "fp8_e4m3"] if value == "fp8" else [],
    "prefix_cache": lambda on: [] if on else ["--disable-radix-cache"],
}
"""By setting: its flags."""
ELSEWHERE: Mapping[str, str] = {
    "max_batched_tokens": "which counts prompt tokens alone",
    "live_cap": "the operator sets it live, as `pp_max_micro_batch_size`",
    "token_budget": "no call moves it",
    "drain_timeout": "the grace period of pods; SGLang finishes what runs, without a limit",
    "cache_isolation": "Tenant is refused where clients have keys of their own and the prefix cache is on",
    "api_keys": "gateways check clients' keys; SGLang's port is open to whom the network policy admits",
    "admin_keys": "SGLang's port is open to whom the network policy admits",
    "admin_port": "SGLang answers on the API's port",
    "identity_header": "gateways check clients; SGLang has no tenants",
    "allowed_origins": "pages call gateways, which have their own",
    "kv_events_config": "use `engine.runtime.args`, as `--kv-events-config`",
    "device": "the build of SGLang decides",
    "threads": "SGLang binds its own threads",
}
"""What becomes of settings beside or in place of a flag."""

_OTHER_ARGS = "use engine.runtime.args, where SGLang has such a flag"
_NO_CHOICE = "SGLang has no such choice"
_NO_TENANTS = "SGLang has no tenants, so quotas of keys do not hold there"
_ITS_SERVER = "SGLang's HTTP server has no such limit; gateways have their own"
_ONLY_TEXT = "only generation is supported on SGLang yet"
_DEFAULTS: Mapping[str, tuple[Any, str]] = {
    "model.chatTemplate": (None, _OTHER_ARGS),
    "model.toolParser": (["auto", "none"], _OTHER_ARGS),
    "model.toolTemplate": ("auto", _OTHER_ARGS),
    "model.reasoningParser": (["auto", "none"], _OTHER_ARGS),
    "model.task": ([None, "generate"], _ONLY_TEXT),
    "model.pooling": (None, _ONLY_TEXT),
    "model.matryoshka": (None, _ONLY_TEXT),
    "engine.image": (None, "use engine.runtime.image, an image of SGLang"),
    "engine.extraArgs": ([], "they are flags of paternoster serve: use engine.runtime.args"),
    "engine.quantization": ("auto", "SGLang reads it from the model: use engine.runtime.args, as --quantization"),
    "engine.batchInvariant": (False, "use engine.runtime.args, as --enable-deterministic-inference"),
    "engine.kvCacheMemory": (None, "SGLang sizes it by a share: use engine.runtime.args, as --mem-fraction-static"),
    "engine.kvCacheDtype": (["auto", "fp8"], "SGLang has no int8 with a scale for each token and head"),
    "engine.parseSpecialTokens": (False, _NO_CHOICE),
    "engine.disableAnyWhitespace": (False, _OTHER_ARGS),
    "engine.order": ([None, "fcfs"], _OTHER_ARGS),
    "engine.minPriority": (0, "SGLang believes any priority of a request"),
    "engine.maxPriority": (1000, "SGLang believes any priority of a request"),
    "engine.vllmMetrics": (None, "SGLang's metrics have its own names"),
    "engine.scheduling.prefillFirst": (False, _NO_CHOICE),
    "engine.scheduling.awaitPrefix": (True, _NO_CHOICE),
    "engine.scheduling.admission": ("greedy", _NO_CHOICE),
    "engine.scheduling.victim": ("least-computed", _NO_CHOICE),
    "engine.scheduling.speculative": (["auto", "off"], _OTHER_ARGS),
    "engine.scheduling.draftModel": (None, _OTHER_ARGS),
    "engine.scheduling.priorityAgingSeconds": (0, _NO_CHOICE),
    "engine.scheduling.pauseLowerClasses": (False, _NO_CHOICE),
    "engine.scheduling.reservedSlots": (0, _NO_CHOICE),
    "engine.memory.watermarkPercent": (1, _NO_CHOICE),
    "engine.memory.gpuUtilizationPercent": (90, "use engine.runtime.args, as --mem-fraction-static"),
    "engine.memory.preemption": ("recompute", "SGLang computes again"),
    "engine.memory.swapMemory": ("256Mi", "SGLang does not swap"),
    "engine.tenants.maxQueued": (0, _NO_TENANTS),
    "engine.tenants.maxRunning": (0, _NO_TENANTS),
    "engine.tenants.tokensPerSecond": (0, _NO_TENANTS),
    "engine.tenants.tokenBurst": (0, _NO_TENANTS),
    "engine.tenants.weights": ([], _NO_TENANTS),
    **{f"engine.http.{name}": (default, _ITS_SERVER) for name, default in HTTP_DEFAULTS.items()},
}
REFUSALS = tuple(Refusal(field, allowed, reason) for field, (allowed, reason) in _DEFAULTS.items())
"""Fields that mean nothing to SGLang, or something else."""

OWNED: Mapping[str, str] = {
    "model-path": "model.source",
    "served-model-name": "model.servedName",
    "sampling-defaults": "model.generationConfig",
    "dtype": "engine.dtype",
    "tensor-parallel-size": "resources.gpu.count",
    "tp-size": "resources.gpu.count",
    "max-running-requests": "engine.maxNumSeqs",
    "context-length": "engine.maxModelLen",
    "chunked-prefill-size": "engine.maxBatchedTokens",
    "max-queued-requests": "engine.maxQueuedRequests",
    "page-size": "engine.blockSize",
    "kv-cache-dtype": "engine.kvCacheDtype",
    "disable-radix-cache": "engine.prefixCache",
}
"""Flags that a field sets."""
OPERATORS: Mapping[str, str] = {
    "host": "the operator sets it",
    "port": "the operator sets it",
    "enable-metrics": "the operator sets it",
    "pp-max-micro-batch-size": "the operator sets it live",
    "pipeline-parallel-size": "the operator's live cap counts one stage",
    "pp-size": "the operator's live cap counts one stage",
    "data-parallel-size": "the operator adds replicas, and reads one scheduler",
    "dp-size": "the operator adds replicas, and reads one scheduler",
    "api-key": "gateways check clients' keys",
    "admin-api-key": "the operator sends no key",
    "config": "a file could set any other flag",
}
"""Flags that no field sets and none may."""


class SglangKind:
    """SGLang, whose live cap ``set_internal_state`` moves."""

    type = RuntimeType.SGLANG
    actuator = Actuator.INTERNAL_STATE
    health_path = paths.HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=False, queue_limit=False, step_costs=False, drain=False, text_chains=False,
        continuation=Continuation.NONE,
    )  # fmt: skip
    finishes_requests = True
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        flags = write_flags(settings, FLAGS)
        env = {"HF_HUB_OFFLINE": "1"}
        return Launch(["python3", "-m", "sglang.launch_server"], [*flags, "--enable-metrics", *args], env)

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        return find_owned(args, OWNED, OPERATORS)
