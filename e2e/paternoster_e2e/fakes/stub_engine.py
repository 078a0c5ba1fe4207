"""Engines without a model, for pods of a fake node: numbers and a live cap for each address."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from paternoster_contract.http import paths
from paternoster_contract.labels import ADMIN_PORT, ENGINE_PORT
from paternoster_contract.stats import EngineState, EngineStats

CAPACITY = 64


@dataclass
class StubEngine:
    """What one engine reports; ``running`` is for tests to set."""

    live_cap: int = CAPACITY
    running: int = 0


class StubEngines:
    """All engines of this machine, by address; one that got no request yet is idle."""

    def __init__(self) -> None:
        self.at: dict[str, StubEngine] = {}

    def engine(self, address: str) -> StubEngine:
        return self.at.setdefault(address, StubEngine())

    def stats(self, address: str) -> dict[str, Any]:
        engine = self.engine(address)
        zeros: dict[str, Any] = {name: 0 for name in EngineStats.model_fields if name.endswith("_total")}
        stats = EngineStats(
            instance=address, model="stub", state=EngineState.READY, started_at=0, time=time.time(),
            last_tick_age_seconds=0, capacity=CAPACITY, live_cap=engine.live_cap, running=engine.running, waiting=0,
            kv_block_size=32, kv_blocks=100, kv_blocks_used=10, kv_blocks_cached=0, kv_projected_peak=0, **zeros,
        )  # fmt: skip
        return stats.model_dump(mode="json")

    def configure(self, address: str, live_cap: int) -> dict[str, Any]:
        self.engine(address).live_cap = live_cap
        return {"capacity": CAPACITY, "live_cap": live_cap, "draining": False}


@contextmanager
def stub_engines() -> Iterator[StubEngines]:
    """Listening on the engines' ports for as long as the block runs."""
    engines = StubEngines()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == paths.STATS
            self._answer(200 if found else 404, engines.stats(self._address()) if found else {})

        def do_PATCH(self) -> None:
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = self.path == paths.ADMIN_CONFIG
            self._answer(200 if found else 404, engines.configure(self._address(), wanted["live_cap"]) if found else {})

        def _address(self) -> str:
            return str(self.connection.getsockname()[0])

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    servers = [ThreadingHTTPServer(("0.0.0.0", port), Handler) for port in (ENGINE_PORT, ADMIN_PORT)]
    for server in servers:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield engines
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
