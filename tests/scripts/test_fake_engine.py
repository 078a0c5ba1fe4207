"""The engine without a model that tests, end-to-end tests and benchmarks share: what it answers and records."""

import asyncio
import json
import socket
from urllib.request import Request, urlopen

import aiohttp
from aiohttp import web

from paternoster_contract.admin import LiveConfig
from paternoster_contract.http import paths
from paternoster_contract.stats import EngineState, EngineStats
from paternoster_e2e.fakes.engine import FakeEngine, engines_of_pods


async def test_its_numbers_are_those_of_an_idle_engine_but_for_what_is_set() -> None:
    engine = FakeEngine("a", numbers={"running": 3})
    async with engine.listening(), aiohttp.ClientSession(engine.url) as client, client.get(paths.STATS) as response:
        stats = EngineStats.model_validate_json(await response.read())
    assert (stats.instance, stats.state, stats.running, stats.waiting) == ("a", EngineState.READY, 3, 0)
    assert (stats.live_cap, stats.capacity, stats.requests_total, engine.looks) == (64, 64, 0, 1)


async def test_limits_are_taken_from_who_has_its_key() -> None:
    engine = FakeEngine(accepts=lambda key: key == "Bearer right")
    async with engine.listening(), aiohttp.ClientSession() as client:
        for key, status in (("wrong", 401), ("right", 200)):
            headers, limits = {"Authorization": f"Bearer {key}"}, {"live_cap": 5, "token_budget": 64}
            async with client.patch(engine.url + paths.ADMIN_CONFIG, json=limits, headers=headers) as response:
                assert response.status == status
                answer = await response.read()
        assert LiveConfig.model_validate_json(answer) == LiveConfig(capacity=64, live_cap=5, draining=False)
        async with client.post(engine.url + paths.ADMIN_DRAIN, headers=headers) as response:
            assert (await response.json())["draining"]
    assert engine.patches == [limits]
    assert engine.admin_keys == ["Bearer wrong", "Bearer right", "Bearer right"]
    assert (engine.report()["token_budget"], engine.report()["state"]) == (64, EngineState.DRAINING)


async def test_answers_come_before_what_engines_have() -> None:
    async def echo(engine: FakeEngine, request: web.Request) -> web.Response:
        return web.Response(text=f"{engine.name} {request.query['q']}")

    engine = FakeEngine(
        "a", answers={paths.METRICS: b"m 1\n", paths.STATS: 503, "/echo": echo, "/v1/models": (404, b"none")}
    )
    async with engine.listening(), aiohttp.ClientSession(engine.url) as client:
        seen = []
        for path in (paths.METRICS, paths.STATS, "/echo?q=x", "/v1/models", "/other"):
            async with client.get(path) as response:
                seen.append((response.status, await response.text()))
    assert seen == [(200, "m 1\n"), (503, ""), (200, "a x"), (404, "none"), (404, "")]
    assert engine.looks == 0


async def test_requests_are_recorded_and_those_whose_client_left_counted() -> None:
    begun = asyncio.Event()

    async def hang(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    async with FakeEngine().listening() as engine, aiohttp.ClientSession(engine.url) as client:
        async with client.post("/v1/completions", json={"prompt": "up"}) as response:
            assert (await response.json())["choices"]
        engine.answers["/v1/embeddings"] = 500, b"{}"
        async with client.post("/v1/embeddings") as response:
            assert response.status == 500
        engine.behave = hang
        leaving = asyncio.create_task(client.post("/v1/chat/completions"))
        await begun.wait()
        leaving.cancel()
        async with asyncio.timeout(20):
            while not engine.gone:
                await asyncio.sleep(0.01)
    assert [json.loads(body) if body else None for body in engine.bodies] == [{"prompt": "up"}, None, None]
    assert engine.paths == ["/v1/completions", "/v1/embeddings", "/v1/chat/completions"]
    assert len(engine.headers) == 3


async def test_a_hung_engine_answers_probes_once_it_hangs_no_more() -> None:
    async with FakeEngine(hung=True).listening() as engine, aiohttp.ClientSession(engine.url) as client:
        probe = asyncio.create_task(client.get(paths.HEALTH))
        async with asyncio.timeout(20):
            while not engine.probes:
                await asyncio.sleep(0.01)
        assert not probe.done()
        engine.hung = False
        async with await probe as response:
            assert response.status == 200


def test_each_address_has_an_engine_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with engines_of_pods([port]) as engines:
        engines.engine("127.0.0.2").numbers["running"] = 2
        body = json.dumps({"live_cap": 7}).encode()
        urlopen(Request(f"http://127.0.0.3:{port}{paths.ADMIN_CONFIG}", body, method="PATCH"), timeout=20).close()
        reports = [json.load(urlopen(f"http://127.0.0.{each}:{port}{paths.STATS}", timeout=20)) for each in (2, 3)]
    assert [(each["instance"], each["running"], each["live_cap"]) for each in reports] == [
        ("127.0.0.2", 2, 64), ("127.0.0.3", 0, 7),
    ]  # fmt: skip
    assert engines.at.keys() == {"127.0.0.2", "127.0.0.3"}
