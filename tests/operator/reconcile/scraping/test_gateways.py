"""A gateway's name may stand for several: what all of them hold is demand."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from paternoster_contract.stats import GatewayModelStats, GatewayStats
from paternoster_operator.scrape import Scraper, count_routing, idle_by_fleet, requests_by_gateway, resolve_addresses


@asynccontextmanager
async def gateway(host: str, port: int, held: int, refused: int = 0) -> AsyncIterator[int]:
    """One gateway that holds ``held`` requests for model m of the fleet uid and has refused others; yields its port."""
    model = GatewayModelStats(
        fleet="uid", aliases=["m:latest"], in_flight=0, held=held, refused=refused, requests_total=0, failed_total=0
    )

    async def stats(_: web.Request) -> web.Response:
        return web.json_response(text=GatewayStats(instance=host, time=0, models={"m": model}).model_dump_json())

    app = web.Application()
    app.router.add_get("/stats", stats)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def name_stands_for(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    async def getaddrinfo(_: Any, port: int, **__: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_every_gateway_behind_a_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(gateway("127.0.0.1", 0, held=3))
        await stack.enter_async_context(gateway("127.0.0.2", port, held=3, refused=1))
        name_stands_for(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.3")
        scraper = Scraper(timeout_seconds=2, gateway_url=f"http://gateways:{port}")
        assert await scraper.held_by_fleet() == {"uid": 7}, "the third does not answer and counts none"
        gateways = await scraper.read_gateways("uid")
        assert [count_routing(gateways, [name], uid) for name, uid in (("m", "uid"), ("m", "other"), ("n", "uid"))] == [
            2,
            0,
            0,
        ]
        assert [count_routing(gateways, names, "uid") for names in ((), ("m", "m:latest"), ("m", "m:other"))] == [
            0,
            2,
            0,
        ]
        await scraper.close()


async def test_a_name_nobody_knows_holds_nothing() -> None:
    scraper = Scraper(timeout_seconds=2, gateway_url="http://nowhere.invalid:1")
    assert await scraper.held_by_fleet() == {}


async def test_addresses_are_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    name_stands_for(monkeypatch, "10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.1")
    assert await resolve_addresses("http://gateways:80") == [
        "http://10.0.0.1:80",
        "http://10.0.0.2:80",
        "http://[fd00::1]:80",
    ]


def test_the_gateway_with_the_latest_request_counts() -> None:
    def stats_of(idle: float | None, fleet: str = "uid") -> GatewayStats:
        counts = {"in_flight": 0, "held": 0, "requests_total": 0, "failed_total": 0}
        model = GatewayModelStats(fleet=fleet, idle_seconds=idle, **counts)
        return GatewayStats(instance="i", time=0, models={"m": model})

    assert idle_by_fleet([stats_of(9), stats_of(4), stats_of(None), stats_of(1, "other")]) == {"uid": 4, "other": 1}
    assert idle_by_fleet([stats_of(None)]) == {}


def test_requests_are_counted_by_fleet_and_gateway_process() -> None:
    def model(fleet: str, requests: int) -> GatewayModelStats:
        return GatewayModelStats(fleet=fleet, in_flight=0, held=0, requests_total=requests, failed_total=0)

    first = GatewayStats(instance="a", time=0, models={"m": model("uid", 7), "n": model("other", 5)})
    second = GatewayStats(instance="b", time=0, models={"m": model("uid", 2)})
    assert requests_by_gateway([first, second], "uid") == {"a": 7, "b": 2}
