"""A real Envoy before fake engines, with a picker in a process of its own."""

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.picked_envoy import make_servers
from harness.servers import Server, started
from paternoster_contract.routing import ModelRoute, RoutingTable
from peers.systems.environment import SetUpError


@dataclass
class Envoy:
    """Envoy and its picker, as processes."""

    envoy: Server
    picker: Server
    table: Path

    @property
    def url(self) -> str:
        return self.envoy.url

    @property
    def stats(self) -> str:
        """URL of the picker's statistics."""
        return f"{self.picker.url}/stats"

    def publish(self, **models: ModelRoute) -> None:
        """Make these all the models there are; the picker reads them a moment later."""
        new = self.table.with_suffix(".new")
        new.write_text(RoutingTable(models=models).model_dump_json())
        new.replace(self.table)

    def terminate_picker(self) -> None:
        os.kill(self.picker.pid, signal.SIGTERM)

    def restart_picker(self) -> None:
        """Kill it, and start it in the same place."""
        self.picker.end()
        self.picker.start()
        self.picker.wait_ready()


@contextmanager
def run_envoy(folder: Path, row: ModelRoute, engines: Sequence[str], **config: Any) -> Iterator[Envoy]:
    """Envoy before ``engines``, URLs of this machine, for a fleet ``m`` with ``row``; ``config`` as of the example.

    The test is skipped where there is no Envoy, and components are not required.
    """
    roots = folder / "roots"
    roots.write_text("root\n")
    try:
        envoy, picker = make_servers(folder, {"m": row}, engines, "--engine-key", str(roots), **config)
    except SetUpError as error:
        pytest.fail(str(error)) if os.environ.get("REQUIRE_COMPONENTS") else pytest.skip(str(error))
    with started([picker, envoy]):
        yield Envoy(envoy, picker, folder / "routes.json")


def closed_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
