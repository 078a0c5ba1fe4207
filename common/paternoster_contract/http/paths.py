"""HTTP paths that more than one package calls."""

HEALTH = "/health"
"""Liveness: 200 while the engine loop ticks, 503 once its last tick is too old."""

READY = "/ready"
"""Readiness: 200 while new requests are admitted, 503 while loading or draining."""

STATS = "/stats"
"""One small JSON document (:class:`paternoster_contract.stats.EngineStats`)."""

METRICS = "/metrics"
"""Prometheus text exposition."""

MODELS = "/v1/models"

MODEL = "/v1/models/{model:path}"
"""One of them; names may have slashes."""

VERSION = "/version"

ADMIN_CONFIG = "/admin/config"
"""GET and PATCH the live settings (:class:`paternoster_contract.admin.LiveConfig`)."""

ADMIN_DRAIN = "/admin/drain"
"""POST: stop admitting, finish what runs; DELETE: admit again. The process stays up until it is terminated."""

ADMIN_RESET_PREFIX_CACHE = "/admin/reset-prefix-cache"
"""POST: forget every cached block that no request holds."""

LOAD_LORA_ADAPTER = "/v1/load_lora_adapter"
"""POST, on the admin port: load an adapter under a name, as vLLM."""

UNLOAD_LORA_ADAPTER = "/v1/unload_lora_adapter"
"""POST, on the admin port: take the name away."""

ROUTES = "/routes"
"""The operator's routing table (:class:`paternoster_contract.routing.RoutingTable`)."""

SHARD_ROUTES = "/routes/shard"
"""One shard's rows of the same, for the operators of the other shards."""

DEBUG_REQUESTS = "/debug/requests"
"""Records of the last calls of a gateway, and of the one whose id follows, on the port of its statistics."""

OPERATOR_HEALTH = "/healthz"
"""The operator's liveness: 200 while every worker lives."""

OPERATOR_READY = "/readyz"
"""The operator's readiness: 200 once the routing table is whole, whether this operator acts or another."""

HAND_OVER = "/hand-over"
"""POST: the engine answers a call that has got no byte yet with its journal, so that another one goes on with it; see
:mod:`paternoster_contract.stream_journal`."""

TEXT_CHAINS = "/text-chains"
"""Which text an engine has cached, as a stream without an end (:mod:`paternoster_contract.text_chains.stream`)."""
