"""Engines and gateways, each a process whose log is a file."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from engine.forked import ForkedProcess, Forking

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
MODEL = "smollm2"
CONTEXT = 1024
"""Tokens; small, so that two cores serve many requests."""
ENGINE_FLAGS = (
    "--threads", "1", "--max-num-seqs", "16", "--max-model-len", str(CONTEXT), "--kv-cache-memory", str(96 * 2**20),
)  # fmt: skip
START_SECONDS = 240


@dataclass
class Server:
    """One process, and how to start it again in the same place."""

    name: str
    command: list[str]
    port: int
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    admin_port: int | None = None
    ready: str = "/ready"
    """Path that answers 200 once it serves."""
    forking: Forking | None = None
    """The process that it is a fork of; None: it is a process of its own."""
    process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        if self.forking is not None:
            self.process = self.forking.fork_server(
                {"command": self.command, "log": str(self.log), "env": {**self.env}}
            )
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env={**os.environ, **self.env})

    def wait_ready(self) -> None:
        """Raises ``RuntimeError`` if it ends, or is not ready in time."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process is None or (status := self.process.poll()) is not None:
                log_end = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} ended with {status}: {log_end}")
            try:
                with urlopen(f"{self.url}{self.ready}", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} is not ready after {START_SECONDS} s")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


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


def engine_stats(server: Server) -> dict[str, Any]:
    """The engine's own numbers; the one place that has their address."""
    with urlopen(f"http://127.0.0.1:{server.admin_port}/stats", timeout=30) as response:
        return dict(json.load(response))


def gateway_stats(server: Server) -> dict[str, Any]:
    """The gateway's numbers of the model."""
    with urlopen(f"{server.url}/stats", timeout=30) as response:
        return dict(json.load(response)["models"][MODEL])


@contextmanager
def started(servers: Sequence[Server]) -> Iterator[None]:
    """``servers``, once all are ready, until the end of the block."""
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.end)
            server.start()
        for server in servers:
            server.wait_ready()
        yield


def free_port() -> int:
    """Of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
