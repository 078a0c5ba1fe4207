"""A server of the OpenAI API, whatever its program: the manifest has that and its flags.

The operator's own settings come as ``$(NAME)`` in command, arguments and environment, which Kubernetes replaces by
variables of the container, and ``paternoster up`` likewise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.adapter import Actuator, Capabilities, Continuation, Launch, Refusal, RuntimeType
from paternoster_operator.engines.vllm_arguments import HTTP_DEFAULTS, model_folder

MODEL_ENV = "PATERNOSTER_MODEL"
PORT_ENV = "PATERNOSTER_PORT"
HOST_ENV = "PATERNOSTER_HOST"
HONOURED: Mapping[str, str] = {
    "model": "`$(PATERNOSTER_MODEL)`, the path of its file or folder",
    "served_model_name": "`$(PATERNOSTER_MODEL_NAME)`, the first of the names",
    "host": "`$(PATERNOSTER_HOST)`",
    "port": "`$(PATERNOSTER_PORT)`",
    "max_num_seqs": "`$(PATERNOSTER_MAX_NUM_SEQS)`; gateways send a replica no more requests at a time",
    "max_model_len": "`$(PATERNOSTER_MAX_MODEL_LEN)`, 0 where it is unset; gateways refuse what is longer",
    "live_cap": "gateways hold it",
    "drain_timeout": "time from the deletion of a pod to SIGTERM, which ends what runs at such a server",
    "token_budget": "no call moves it",
    "cache_isolation": "Tenant is refused where clients have keys of their own and the prefix cache is on",
    "prefix_cache": "whether the server has one is the manifest's to say: it passes nothing on",
    "api_keys": "gateways check clients' keys; the server's port is open to whom the network policy admits",
    "admin_keys": "it has no admin API",
    "admin_port": "it has no admin API",
    "identity_header": "gateways check clients; it has no tenants",
    "allowed_origins": "pages call gateways, which have their own",
    "kv_events_config": "use `engine.runtime.args`",
    "device": "use `engine.runtime.args`",
    "threads": "use `engine.runtime.args`",
    "tensor_parallel_size": "use `engine.runtime.args`",
}
"""Settings that are not refused, and what becomes of them."""

_PASSED = "the operator cannot pass it to the server: use engine.runtime.args"
_ONLY_TEXT = "only generation is supported on such a server"
_NO_TENANTS = "such a server has no tenants, so quotas of keys do not hold there"
_DEFAULTS: Mapping[str, Any] = {
    "model.chatTemplate": None,
    "model.toolParser": "auto",
    "model.toolTemplate": "auto",
    "model.reasoningParser": "auto",
    "model.generationConfig": "auto",
    "engine.dtype": "auto",
    "engine.quantization": "auto",
    "engine.batchInvariant": False,
    "engine.blockSize": [None, 32],
    "engine.kvCacheMemory": None,
    "engine.kvCacheDtype": "auto",
    "engine.maxBatchedTokens": None,
    "engine.maxQueuedRequests": 1024,
    "engine.parseSpecialTokens": False,
    "engine.disableAnyWhitespace": False,
    "engine.order": None,
    "engine.minPriority": 0,
    "engine.maxPriority": 1000,
    "engine.vllmMetrics": None,
    "engine.scheduling.prefillFirst": False,
    "engine.scheduling.awaitPrefix": True,
    "engine.scheduling.admission": "greedy",
    "engine.scheduling.victim": "least-computed",
    "engine.scheduling.speculative": "auto",
    "engine.scheduling.draftModel": None,
    "engine.scheduling.priorityAgingSeconds": 0,
    "engine.scheduling.pauseLowerClasses": False,
    "engine.scheduling.reservedSlots": 0,
    "engine.memory.watermarkPercent": 1,
    "engine.memory.gpuUtilizationPercent": 90,
    "engine.memory.preemption": "recompute",
    "engine.memory.swapMemory": "256Mi",
    **{f"engine.http.{name}": default for name, default in HTTP_DEFAULTS.items()},
}
"""What is the operator's own engine's alone."""
REFUSALS: tuple[Refusal, ...] = (
    Refusal("model.task", [None, "generate"], _ONLY_TEXT),
    Refusal("model.pooling", None, _ONLY_TEXT),
    Refusal("model.matryoshka", None, _ONLY_TEXT),
    Refusal("engine.image", None, "use engine.runtime.image, an image of the server"),
    Refusal("engine.extraArgs", [], "they are flags of paternoster serve: use engine.runtime.args"),
    Refusal("engine.tenants.maxQueued", 0, _NO_TENANTS),
    Refusal("engine.tenants.maxRunning", 0, _NO_TENANTS),
    Refusal("engine.tenants.tokensPerSecond", 0, _NO_TENANTS),
    Refusal("engine.tenants.tokenBurst", 0, _NO_TENANTS),
    Refusal("engine.tenants.weights", [], _NO_TENANTS),
    *(Refusal(field, default, _PASSED) for field, default in _DEFAULTS.items()),
)


def build_env(settings: EngineArgs) -> dict[str, str]:
    """The settings that the server's flags may name."""
    return {
        HOST_ENV: settings.host,
        PORT_ENV: str(settings.port),
        MODEL_ENV: model_folder(settings.model),
        "PATERNOSTER_MODEL_NAME": settings.served_model_name[0] if settings.served_model_name else "model",
        "PATERNOSTER_MAX_NUM_SEQS": str(settings.max_num_seqs),
        "PATERNOSTER_MAX_MODEL_LEN": str(settings.max_model_len or 0),
    }


class OpenAiKind:
    """Any server of the OpenAI API with ``GET /health``, such as llama.cpp's."""

    type = RuntimeType.OPENAI
    actuator = Actuator.GATEWAY
    health_path = paths.HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=False, queue_limit=False, step_costs=False, drain=False, text_chains=False,
        continuation=Continuation.NONE,
    )  # fmt: skip
    finishes_requests = False
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        """The image's own program, where the manifest names none."""
        return Launch([], list(args), build_env(settings))

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        """None: all flags are the manifest's."""
        return []
