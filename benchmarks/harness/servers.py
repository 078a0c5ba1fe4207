"""Engines and gateways, each a process whose log is a file."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from harness.forked import ForkedProcess, Forking
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
START_SECONDS = 600
"""A busy machine may take so long to load a model."""


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


@contextmanager
def child_process(target: Callable[..., object], *args: object, port: int) -> Iterator[int]:
    """The id of a process of this program that runs ``target``, once it listens on ``port``; killed after the block."""
    process = get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    try:
        while process.is_alive():
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


@contextmanager
def served(
    *flags: str, program: Sequence[str] = (PATERNOSTER, "serve"), env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start an engine with ``flags``; the block begins once it is ready."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        server = Server("engine", [*program, "--port", str(port), *flags], port, Path(folder) / "log", env or {})
        with started([server]):
            yield server


def free_port() -> int:
    """Find a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def engine_server(folder: Path, name: str, *flags: str, env: Mapping[str, str] | None = None) -> Server:
    """``paternoster serve`` on one thread, with a port for its admin API."""
    port, admin = free_port(), free_port()
    command = [PATERNOSTER, "serve", "--port", str(port), "--admin-port", str(admin), "--threads", "1", *flags]
    env = {"OMP_NUM_THREADS": "1", **(env or {})}
    return Server(name, command, port, folder / f"{name}.log", env, admin_port=admin)


def gateway_server(
    folder: Path,
    routes: Mapping[str, ModelRoute] | Path | str,
    *flags: str,
    name: str = "gateway",
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (PATERNOSTER,),
) -> Server:
    """``paternoster gateway``; ``routes``: by model, written to a file of its own, or where a table is."""
    port = free_port()
    if isinstance(routes, Mapping):
        models, routes = routes, folder / f"{name}-routes.json"
        routes.write_text(RoutingTable(models=dict(models)).model_dump_json())
    command = [*program, "gateway", "--routes", str(routes), "--port", str(port), *flags]
    return Server(name, command, port, folder / f"{name}.log", env or {})


def route_to(*urls: str, **fields: Any) -> ModelRoute:
    """A route to ready replicas, each named after its URL."""
    return ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in urls], **fields)


def local_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
