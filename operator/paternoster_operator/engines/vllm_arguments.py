"""The settings of an engine as vLLM's flags, and the fields that vLLM cannot honour."""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.adapter import Actuator, Capabilities, Continuation, Launch, Refusal, RuntimeType

HEALTH = "/paternoster/health"
"""The plugin's: vLLM's own is 200 while its core hangs."""
MIDDLEWARE = "paternoster_vllm.middleware.LimitsMiddleware"
ADMIN_KEYS_ENV = "PATERNOSTER_VLLM_ADMIN_KEYS"
API_KEYS_ENV = "PATERNOSTER_VLLM_API_KEYS"
GATEWAY_ENV = "PATERNOSTER_VLLM_GATEWAY"
_FILE = "file://"


def value_of(flag: str) -> Callable[[Any], list[str]]:
    return lambda value: [] if value is None else [f"--{flag}", str(value)]


def other_than(default: object, flag: str) -> Callable[[Any], list[str]]:
    """Where the field has its default, the engine's own default holds, which depends on the device."""
    return lambda value: [] if value == default else [f"--{flag}", str(value)]


FLAGS: Mapping[str, Callable[[Any], list[str]]] = {
    "served_model_name": lambda names: ["--served-model-name", *names] if names else [],
    "host": value_of("host"),
    "port": value_of("port"),
    "chat_template": value_of("chat-template"),
    "generation_config": lambda value: ["--generation-config", "vllm"] if value == "none" else [],
    "dtype": other_than("auto", "dtype"),
    "tensor_parallel_size": other_than(1, "tensor-parallel-size"),
    "max_num_seqs": value_of("max-num-seqs"),
    "max_model_len": value_of("max-model-len"),
    "max_batched_tokens": value_of("max-num-batched-tokens"),
    "kv_cache_memory": lambda size: ["--kv-cache-memory-bytes", str(size)] if size else [],
    "watermark_percent": lambda percent: ["--watermark", f"{percent / 100:g}"],
    "block_size": value_of("block-size"),
    "kv_cache_dtype": other_than("auto", "kv-cache-dtype"),
    "prefix_cache": lambda on: [] if on else ["--no-enable-prefix-caching"],
    "order": lambda value: ["--scheduling-policy", "priority"] if value == "priority" else [],
    "drain_timeout": lambda seconds: ["--shutdown-timeout", f"{seconds:g}"],
}
"""By setting: its flags. The model comes first of all, as vLLM's one positional argument."""
ELSEWHERE: Mapping[str, str] = {
    "model": "the positional argument",
    "max_queued_requests": "`--max-num-queued-reqs`, which counts those that run, too",
    "api_keys": "the plugin reads the folder of keys",
    "admin_keys": "the plugin reads the folder of keys",
    "admin_port": "the plugin answers on the API's port",
    "kv_events_config": "use `engine.runtime.args`, as `--kv-events-config`: the events are the same",
    "tool_template": "vLLM renders tools by the model's own template alone",
    "parse_special_tokens": "vLLM always lets what is spelled like a control token be one",
    "allowed_origins": "pages call gateways, which have their own",
    "identity_header": "the plugin believes the gateway's headers of streams; vLLM has no tenants",
    "device": "the build of vLLM decides",
    "threads": "vLLM binds its own threads",
    "live_cap": "the operator sets it live, through the plugin",
    "token_budget": "the operator sets it live, through the plugin",
    "cache_isolation": "Tenant is refused where clients have keys of their own and the prefix cache is on",
}
"""Settings that are no flag, and what becomes of them."""

_NO_TENANTS = "vLLM has no tenants, so quotas of keys do not hold there"
_ITS_PARSERS = "vLLM's parsers have other names: use engine.runtime.args, as --tool-call-parser or --reasoning-parser"
_ITS_SERVER = "vLLM's HTTP server has no such limit; gateways have their own"
HTTP_DEFAULTS: Mapping[str, int] = {
    "maxHeaderBytes": 32_768,
    "maxHeaders": 100,
    "maxUrlBytes": 8192,
    "maxBodyBytes": 4 * 2**20,
    "maxHeldBodyBytes": 128 * 2**20,
    "headerTimeoutSeconds": 20,
    "bodyTimeoutSeconds": 60,
    "writeTimeoutSeconds": 60,
    "keepAliveTimeoutSeconds": 75,
    "maxConnections": 4096,
    "maxConnectionsPerAddress": 0,
}
"""Below engine.http."""
REFUSALS: tuple[Refusal, ...] = (
    Refusal("model.toolParser", ["auto", "none"], _ITS_PARSERS),
    Refusal("model.reasoningParser", ["auto", "none"], _ITS_PARSERS),
    Refusal("model.task", [None, "generate"], "only generation is supported on vLLM yet"),
    Refusal("model.pooling", None, "only generation is supported on vLLM yet"),
    Refusal("model.matryoshka", None, "only generation is supported on vLLM yet"),
    Refusal("engine.image", None, "use engine.runtime.image, an image of vLLM"),
    Refusal("engine.extraArgs", [], "they are flags of paternoster serve: use engine.runtime.args"),
    Refusal("engine.quantization", "auto", "vLLM reads it from the model: use engine.runtime.args, as --quantization"),
    Refusal("engine.batchInvariant", False, "use engine.runtime.env, as VLLM_BATCH_INVARIANT, where the GPU has it"),
    Refusal("engine.kvCacheDtype", ["auto", "fp8"], "vLLM has no int8 with a scale for each token and head"),
    Refusal("engine.disableAnyWhitespace", False, "use engine.runtime.args, as --structured-outputs-config"),
    Refusal("engine.order", [None, "fcfs", "priority"], _NO_TENANTS),
    Refusal("engine.minPriority", 0, "vLLM believes any priority of a request"),
    Refusal("engine.maxPriority", 1000, "vLLM believes any priority of a request"),
    Refusal("engine.vllmMetrics", [None, True], "vLLM always exports its metrics"),
    Refusal("engine.scheduling.prefillFirst", False, "vLLM always mixes prompts with single tokens"),
    Refusal("engine.scheduling.awaitPrefix", True, "vLLM has no such choice"),
    Refusal("engine.scheduling.admission", "greedy", "vLLM has no such choice"),
    Refusal("engine.scheduling.victim", "least-computed", "vLLM preempts the request that came last"),
    Refusal("engine.scheduling.speculative", ["auto", "off"], "use engine.runtime.args, as --speculative-config"),
    Refusal("engine.scheduling.draftModel", None, "use engine.runtime.args, as --speculative-config"),
    Refusal("engine.scheduling.priorityAgingSeconds", 0, "vLLM's priorities do not age"),
    Refusal("engine.scheduling.pauseLowerClasses", False, "vLLM has no such choice"),
    Refusal("engine.scheduling.reservedSlots", 0, "vLLM reserves no slots"),
    Refusal("engine.memory.gpuUtilizationPercent", 90, "vLLM's share is of all memory of a GPU, not of what the model "
            "leaves free: use engine.runtime.args, as --gpu-memory-utilization"),
    Refusal("engine.memory.preemption", "recompute", "vLLM computes again"),
    Refusal("engine.memory.swapMemory", "256Mi", "vLLM does not swap"),
    Refusal("engine.tenants.maxQueued", 0, _NO_TENANTS),
    Refusal("engine.tenants.maxRunning", 0, _NO_TENANTS),
    Refusal("engine.tenants.tokensPerSecond", 0, _NO_TENANTS),
    Refusal("engine.tenants.tokenBurst", 0, _NO_TENANTS),
    Refusal("engine.tenants.weights", [], _NO_TENANTS),
    *(Refusal(f"engine.http.{name}", default, _ITS_SERVER) for name, default in HTTP_DEFAULTS.items()),
)  # fmt: skip
"""Fields that mean nothing to vLLM, or something else."""

OWNED: Mapping[str, str] = {
    "model": "model.source",
    "served-model-name": "model.servedName",
    "chat-template": "model.chatTemplate",
    "generation-config": "model.generationConfig",
    "dtype": "engine.dtype",
    "tensor-parallel-size": "resources.gpu.count",
    "max-num-seqs": "engine.maxNumSeqs",
    "max-num-active-seqs": "concurrency.max",
    "max-model-len": "engine.maxModelLen",
    "max-num-batched-tokens": "engine.maxBatchedTokens",
    "max-num-scheduled-tokens": "concurrency.tokenBudget",
    "max-num-queued-reqs": "engine.maxQueuedRequests",
    "watermark": "engine.memory.watermarkPercent",
    "block-size": "engine.blockSize",
    "kv-cache-dtype": "engine.kvCacheDtype",
    "kv-cache-memory-bytes": "engine.kvCacheMemory",
    "enable-prefix-caching": "engine.prefixCache",
    "no-enable-prefix-caching": "engine.prefixCache",
    "disable-prefix-caching": "engine.prefixCache",
    "scheduling-policy": "engine.order",
    "shutdown-timeout": "drain.timeoutSeconds",
    "api-key": "security.apiKeySecretRef",
}
"""Flags that a field sets."""
_ONE_CORE = "the operator adds replicas, and the plugin counts one engine core"
_GENERATION = "only generation is supported on vLLM yet"
OPERATORS: Mapping[str, str] = {
    "help": "vLLM would print its flags and end",
    "host": "the operator sets it",
    "port": "the operator sets it",
    "uds": "the operator reaches engines by TCP",
    "root-path": "the operator reaches the plugin by its own path",
    "headless": "the operator needs the API server",
    "config": "a file could set any other flag",
    "api-server-count": "the plugin counts the requests of one API server",
    "disable-log-stats": "the operator reads /metrics",
    "tokens-only": "gateways send requests of the OpenAI API, which it takes away",
    "skip-tokenizer-init": "requests have text, which only a tokenizer turns into tokens",
    **dict.fromkeys(
        ("disable-chunked-prefill", "no-enable-chunked-prefill"),
        "a prompt that is longer than the live token budget would never run",
    ),
    **dict.fromkeys(
        ("nnodes", "node-rank", "master-addr", "master-port"), "a replica is one pod: the operator adds replicas"
    ),
    **dict.fromkeys(
        (
            "grpc", "grpc-port", "ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "ssl-ciphers",
            "enable-ssl-refresh",
        ),
        "gateways speak HTTP to engines",
    ),
    **dict.fromkeys(("runner", "convert", "mm-encoder-only"), _GENERATION),
    "lora-modules": "gateways have routes to model.servedName alone",
    **dict.fromkeys(("enable-elastic-ep", "elastic-ep-max-dp-size"), _ONE_CORE),
    **{
        f"data-parallel-{name}": _ONE_CORE
        for name in (
            "size", "rank", "start-rank", "size-local", "address", "rpc-port", "backend", "supervisor-port",
            "hybrid-lb", "external-lb", "multi-port-external-lb",
        )
    },
}  # fmt: skip
"""Flags that no field sets and none may."""
HARMLESS: Mapping[str, frozenset[str]] = {
    "runner": frozenset({"auto", "generate"}),
    "convert": frozenset({"auto", "none"}),
}
"""Values with which such a flag may be there."""
SHORT = {
    "tp": "tensor-parallel-size",
    "dp": "data-parallel-size",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dph": "data-parallel-hybrid-lb",
    "dpe": "data-parallel-external-lb",
    "dpm": "data-parallel-multi-port-external-lb",
    "asc": "api-server-count",
    "n": "nnodes",
    "r": "node-rank",
    "h": "help",
}
"""Names with one hyphen, of vLLM 0.33, of flags that are refused; no such name is one of the others cut short."""


def write_flags(settings: EngineArgs, flags: Mapping[str, Callable[[Any], list[str]]]) -> list[str]:
    """The words of ``flags`` for ``settings``; of a block size only where it is set, as engines choose theirs."""
    left_out = {"block_size"} - settings.model_fields_set
    return [word for name, write in flags.items() if name not in left_out for word in write(getattr(settings, name))]


def build_flags(settings: EngineArgs) -> list[str]:
    """The arguments of ``vllm serve``."""
    # vLLM's size is of each GPU, ours of all of them together.
    memory = None if settings.kv_cache_memory is None else settings.kv_cache_memory // settings.tensor_parallel_size
    each = settings.model_copy(update={"kv_cache_memory": memory})
    flags = write_flags(each, FLAGS)
    flags += ["--max-num-queued-reqs", str(settings.max_queued_requests + settings.max_num_seqs)]
    # First, as what follows the names of the model would be another name.
    return [model_folder(settings.model), *flags, "--middleware", MIDDLEWARE]


def build_env(settings: EngineArgs) -> dict[str, str]:
    """What vLLM and the plugin read from the environment."""
    env = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    if settings.admin_keys is not None:
        env[ADMIN_KEYS_ENV] = settings.admin_keys
    if settings.api_keys is not None:
        env[API_KEYS_ENV] = settings.api_keys
        if settings.identity_header:  # the keys are a gateway's alone
            env[GATEWAY_ENV] = "1"
    return env


def model_folder(model: str) -> str:
    """The path of a ``file://`` address, which is all that vLLM and our engine read alike."""
    return unquote(model.removeprefix(_FILE))


def find_owned(
    args: Sequence[str],
    owned: Mapping[str, str],
    operators: Mapping[str, str],
    short: Mapping[str, str] = MappingProxyType({}),
    harmless: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> list[str]:
    """A line for each of ``args`` that sets what a field of the resource, or the operator, sets.

    ``owned`` and ``operators`` are such flags, with the field or the reason; ``short``: other names of flags;
    ``harmless``: values with which a flag is none of them.
    """

    def describe(word: str, behind: str) -> str | None:
        if not word.startswith("-"):
            return None
        before, equals, value = word.partition("=")
        name = before.lstrip("-").replace("_", "-").partition(".")[0]
        # A name of one letter may have its value behind it; all others have two hyphens, but for those of ``short``.
        flag = short.get(name) or (name if word.startswith("--") else short.get(name[:1], ""))
        flags = (*owned, *operators)
        # The engine's parser completes a flag that is cut short.
        found = flag if flag in flags else next((each for each in flags if flag and each.startswith(flag)), None)
        if found is None or (value if equals else behind) in harmless.get(found, ()):
            return None
        why = f"use {owned[found]}" if found in owned else operators[found]
        return f"{before[:60]} must not be here: {why}"

    pairs = zip_longest(args, args[1:], fillvalue="")
    return [line for word, behind in pairs if (line := describe(word, behind))]


def find_owned_flags(args: Sequence[str]) -> list[str]:
    """The same of vLLM's flags."""
    return find_owned(args, OWNED, OPERATORS, SHORT, HARMLESS)


class VllmKind:
    """vLLM with the plugin, of a version with ``--max-num-queued-reqs``: 0.29 or newer."""

    type = RuntimeType.VLLM
    actuator = Actuator.PLUGIN
    health_path = HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=True, queue_limit=True, step_costs=True, drain=False, text_chains=True,
        continuation=Continuation.VALID,
        not_continued=("media", "penalties_of_answers", "server_tools", "whole_answers"),
    )  # fmt: skip
    finishes_requests = True
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        return Launch(["vllm", "serve"], [*build_flags(settings), *args], build_env(settings))

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        return find_owned_flags(args)
