"""Every HTTP route of engines and of the gateway, once: who serves it, for whom, and what the gateway does with it."""

from dataclasses import dataclass
from enum import StrEnum

from paternoster_contract.http import paths


class Kind(StrEnum):
    """What a route is for, and so who may call it."""

    API = "api"
    """For clients: those with one of the keys, where there are any."""
    NUMBERS = "numbers"
    """For monitoring. On an engine's API port as :attr:`API`; on its admin port and the gateway without a key."""
    PROBE = "probe"
    """Without a key: kubelets and load balancers have none."""
    GATEWAY = "gateway"
    """For gateways, with the key that opens an engine's API, on that port alone."""
    ADMIN = "admin"
    """For the operator, with a key of the admin API."""


class AtGateway(StrEnum):
    """What the gateway does with a request."""

    FORWARDS = "forwards"
    """To an engine of the model that the body names."""
    ANSWERS = "answers"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    """In braces what a request fills in."""
    kind: Kind
    gateway: AtGateway
    serves: str
    """In a line."""
    streams: bool = False
    """Whether it answers with server-sent events where its body has ``"stream": true``."""

    @property
    def on_api_port(self) -> bool:
        """Whether an engine's API port has the route."""
        return self.kind is not Kind.ADMIN

    @property
    def on_admin_port(self) -> bool:
        """Whether an engine's admin port has the route."""
        return self.kind not in (Kind.API, Kind.GATEWAY)


def _api_route(
    method: str, path: str, serves: str, gateway: AtGateway = AtGateway.FORWARDS, *, streams: bool = False
) -> Route:
    return Route(method, path, Kind.API, gateway, serves, streams)


def _probe_route(path: str, kind: Kind, serves: str, gateway: AtGateway = AtGateway.ANSWERS) -> Route:
    return Route("GET", path, kind, gateway, serves)


def _admin_route(method: str, path: str, serves: str) -> Route:
    return Route(method, path, Kind.ADMIN, AtGateway.NONE, serves)


ROUTES = (
    _api_route("POST", "/v1/chat/completions", "answers to a conversation", streams=True),
    _api_route("POST", "/v1/completions", "continuations of texts", streams=True),
    _api_route("POST", "/v1/responses", "answers in OpenAI's newer form, without a store", streams=True),
    _api_route("POST", "/v1/messages", "answers in Anthropic's form", streams=True),
    _api_route("POST", "/v1/messages/count_tokens", "how many tokens such a request has"),
    _api_route("POST", "/v1/embeddings", "vectors of texts, as OpenAI and Voyage"),
    _api_route("POST", "/v2/embed", "vectors of texts, as Cohere"),
    _api_route("POST", "/v1/rerank", "documents in the order of what they have to do with a query, as Jina and Voyage"),
    _api_route("POST", "/v2/rerank", "the same, as Cohere"),
    _api_route("POST", "/rerank", "the same"),
    _api_route("POST", "/v1/score", "how much pairs of texts have to do with each other, as vLLM"),
    _api_route("POST", "/score", "the same"),
    _api_route("POST", "/tokenize", "the tokens of a text or a conversation, as vLLM"),
    _api_route("POST", "/detokenize", "the text of tokens, as vLLM"),
    _api_route("GET", paths.MODELS, "the models that the caller may ask", AtGateway.ANSWERS),
    _api_route("GET", paths.MODEL, "one of them", AtGateway.ANSWERS),
    _probe_route(paths.HEALTH, Kind.PROBE, "liveness: 503 once an engine's loop stands still"),
    _probe_route(paths.READY, Kind.PROBE, "readiness: 200 while new requests are taken"),
    _probe_route(paths.VERSION, Kind.PROBE, "the version of the program", AtGateway.NONE),
    _probe_route(paths.STATS, Kind.NUMBERS, "its numbers in one JSON document"),
    _probe_route(paths.METRICS, Kind.NUMBERS, "its numbers for Prometheus"),
    Route("POST", paths.HAND_OVER, Kind.GATEWAY, AtGateway.NONE, "hands over a call that has got no byte yet"),
    _probe_route(paths.TEXT_CHAINS, Kind.GATEWAY, "which text is cached, as a stream of changes", AtGateway.NONE),
    _admin_route("GET", paths.ADMIN_CONFIG, "the live settings"),
    _admin_route("PATCH", paths.ADMIN_CONFIG, "changes live settings; acts on the next step"),
    _admin_route("POST", paths.ADMIN_DRAIN, "admits no more; what runs is finished"),
    _admin_route("DELETE", paths.ADMIN_DRAIN, "admits again"),
    _admin_route("POST", paths.ADMIN_RESET_PREFIX_CACHE, "forgets cached blocks that no request holds"),
    _admin_route("POST", paths.LOAD_LORA_ADAPTER, "loads an adapter, which is a model from then on; as vLLM"),
    _admin_route("POST", paths.UNLOAD_LORA_ADAPTER, "unloads it; requests that run go on with it"),
)

PROBES = frozenset(route.path for route in ROUTES if route.kind is Kind.PROBE)
NUMBERS = frozenset(route.path for route in ROUTES if route.kind is Kind.NUMBERS)
FORWARDED = tuple(route.path for route in ROUTES if route.gateway is AtGateway.FORWARDS)
"""Paths that the gateway forwards to engines; all with POST."""
STREAMED = frozenset(route.path for route in ROUTES if route.streams)


def guarded_prefixes(kind: Kind) -> tuple[str, ...]:
    """First parts of the paths of ``kind``: a key opens all below them, routes that are not there included."""
    return tuple(dict.fromkeys("/" + route.path.split("/")[1] for route in ROUTES if route.kind is kind))
