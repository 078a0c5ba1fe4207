"""The settings of an engine as vLLM's flags, and the fields that vLLM cannot honour."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.model import model_path
from paternoster_operator.engines.adapter import Actuator, BoundPort, Capabilities, Continuation, Launch, RuntimeType
from paternoster_operator.engines.arguments import (
    find_owned,
    list_refusals,
    map_owned_flags,
    replace_flags,
    write_flags,
)

HEALTH = "/paternoster/health"
"""The plugin's: vLLM's own is 200 while its core hangs."""
MIDDLEWARE = "paternoster_vllm.middleware.LimitsMiddleware"
ADMIN_KEYS_ENV = "PATERNOSTER_VLLM_ADMIN_KEYS"
API_KEYS_ENV = "PATERNOSTER_VLLM_API_KEYS"
GATEWAY_ENV = "PATERNOSTER_VLLM_GATEWAY"

REFUSALS = list_refusals(RuntimeType.VLLM, "vLLM")
"""Fields that mean nothing to vLLM, or something else."""

OWNED: Mapping[str, str] = {
    **map_owned_flags(RuntimeType.VLLM),
    "max-num-active-seqs": "concurrency.max",
    "api-key": "security.apiKeySecretRef",
}
"""Flags that a field sets."""
_ONE_CORE = "the operator adds replicas, and the plugin counts one engine core"
_ALL_GPUS = (
    "vLLM has one process for each of resources.gpu.count, and --tensor-parallel-size has them all: raise the count, "
    "or spec.replicas"
)
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
    **dict.fromkeys(("pipeline-parallel-size", "prefill-context-parallel-size"), _ALL_GPUS),
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
    "pipeline-parallel-size": frozenset({"1"}),
    "prefill-context-parallel-size": frozenset({"1"}),
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
    "pp": "pipeline-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "asc": "api-server-count",
    "n": "nnodes",
    "r": "node-rank",
    "h": "help",
}
"""Names with one hyphen, of vLLM 0.33, of flags that are refused; no such name is one of the others cut short."""


def build_flags(settings: EngineArgs) -> list[str]:
    """The arguments of ``vllm serve``."""
    # vLLM's size is of each GPU, ours of all of them together.
    memory = None if settings.kv_cache_memory is None else settings.kv_cache_memory // settings.tensor_parallel_size
    each = settings.model_copy(update={"kv_cache_memory": memory})
    flags = write_flags(each, RuntimeType.VLLM)
    flags += ["--max-num-queued-reqs", str(settings.max_queued_requests + settings.max_num_seqs)]
    # First, as what follows the names of the model would be another name.
    return [model_path(settings.model), *flags, "--middleware", MIDDLEWARE]


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
    inherits_sockets = False
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        return Launch(["vllm", "serve"], [*build_flags(settings), *args], build_env(settings))

    def start_locally(self, launch: Launch, host: str, port: BoundPort, admin: BoundPort | None) -> Launch:
        return replace(launch, args=replace_flags(launch.args, port=port.number, host=host))

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        return find_owned(args, OWNED, OPERATORS, SHORT, HARMLESS)
