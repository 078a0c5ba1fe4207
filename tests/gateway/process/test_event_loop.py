"""What the command sets for its process before it serves: the event loop, and how often all objects are looked at."""

import argparse
import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from paternoster_gateway.commands import gateway
from paternoster_gateway.process.drain import Server


@pytest.fixture(autouse=True)
def _restore_collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_gateway_serves_on_uvloop_and_seldom_collects_all(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    async def serve(_: Server, sockets: list[object]) -> None:
        seen.extend([type(asyncio.get_running_loop()), gc.get_threshold(), gc.isenabled()])

    monkeypatch.setattr(Server, "serve", serve)
    parser = argparse.ArgumentParser()
    gateway.add_arguments(parser)
    assert gateway.run(parser.parse_args(["--routes", str(table), "--port", "0"])) == 0
    assert seen == [uvloop.Loop, gateway.GC_THRESHOLDS, True]
