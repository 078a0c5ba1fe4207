"""The gateway follows what replicas publish and sends prompts there; other engines get requests by load alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, until

from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key
from paternoster_contract.http import paths
from paternoster_contract.http.headers import CACHED_TOKENS, DEBUG, PROMPT_TOKENS, ROUTING
from paternoster_contract.text_chains.canonical_text import canonical_text
from paternoster_contract.text_chains.chain import chain_scope, text_chain
from paternoster_contract.text_chains.stream import (
    MEDIA_TYPE,
    VERSION,
    Changes,
    Frame,
    Heartbeat,
    Hello,
    Snapshot,
    encode_frame,
)
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.text_chains import follower

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"


def body(topic: str) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "user", "content": f"{topic} and so on and on. " * (40 if topic else 2)}],
    }


def pieces_of(topic: str) -> dict[int, int]:
    text = canonical_text(PATH, body(topic))
    assert text is not None
    return {piece.digest: piece.end // 4 for piece in text_chain(chain_scope("m"), text)}


class Publisher:
    """An engine's stream of text chains."""

    def __init__(self, held: dict[int, int], instance: str = "ab" * 16) -> None:
        self.held, self.instance, self.sequence = held, instance, 0
        self.queries: list[dict[str, str]] = []
        self.keys: list[str] = []
        self.frames: asyncio.Queue[Frame | bytes | None] = asyncio.Queue()
        self.model, self.version = "m", VERSION

    def change(self, stored: dict[int, int], *removed: int, skips: int = 0) -> None:
        self.sequence += 1 + skips
        self.held.update(stored)
        for digest in removed:
            self.held.pop(digest, None)
        self.frames.put_nowait(Changes(self.sequence, stored, removed))

    async def __call__(self, _: FakeEngine, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        self.keys.append(request.headers.get("Authorization", ""))
        response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
        await response.prepare(request)
        resumes = request.query.get("instance") == self.instance and request.query.get("after") == str(self.sequence)
        hello = Hello(
            version=self.version, instance=self.instance, resumes=resumes, model=self.model, isolates_tenants=True,
            block_size=16,
        )  # fmt: skip
        await response.write(encode_frame(hello))
        if not resumes:
            await response.write(encode_frame(Snapshot(self.sequence, self.held)))
        while True:
            try:
                frame = await asyncio.wait_for(self.frames.get(), 0.1)
            except TimeoutError:
                frame = Heartbeat(self.sequence)
            if frame is None:
                return response
            await response.write(frame if isinstance(frame, bytes) else encode_frame(frame))


def reports(cached: int) -> Behave:
    async def behave(engine: FakeEngine, _: web.Request) -> web.StreamResponse:
        headers = {PROMPT_TOKENS: "300", CACHED_TOKENS: str(cached)}
        return web.json_response({"from": engine.name}, headers=headers)

    return behave


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(follower, "UNPUBLISHED_SECONDS", 1.5)


@pytest.fixture
async def fleet(door: Door, start: Start) -> tuple[FakeEngine, FakeEngine]:
    """Two replicas of a fleet; both publish."""
    engines = await start("a", reports(250)), await start("b", reports(250))
    for engine in engines:
        engine.answers[paths.TEXT_CHAINS] = Publisher({}, instance=engine.name * 32)
    door.publish(*engines)
    return engines


@asynccontextmanager
async def asking(client: aiohttp.ClientSession, door: Door, topic: str) -> AsyncIterator[aiohttp.ClientResponse]:
    async with client.post(door.url + PATH, json=body(topic), headers={DEBUG: "1"}) as response:
        assert response.status == 200, await response.text()
        yield response


async def routing(client: aiohttp.ClientSession, door: Door, topic: str) -> dict[str, str]:
    async with asking(client, door, topic) as response:
        parts = [part.split("=") for part in response.headers[ROUTING].split(", ")]
        return dict(parts) | {"from": (await response.json())["from"]}


async def metric(client: aiohttp.ClientSession, door: Door, name: str) -> float:
    async with client.get(f"{door.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def models(client: aiohttp.ClientSession, door: Door) -> str:
    async with client.get(f"{door.url}/v1/models") as response:
        return await response.text()


async def whole(client: aiohttp.ClientSession, door: Door, count: int) -> None:
    await until(lambda: metric(client, door, "paternoster_gateway_replicas_indexed "), lambda seen: seen == count)


def publisher(engine: FakeEngine) -> Publisher:
    found = engine.answers[paths.TEXT_CHAINS]
    assert isinstance(found, Publisher)
    return found


@pytest.mark.parametrize("holder", [0, 1])
async def test_a_prompt_goes_to_the_replica_that_publishes_it(
    client: aiohttp.ClientSession, door: Door, fleet: tuple[FakeEngine, FakeEngine], holder: int
) -> None:
    await whole(client, door, 2)
    assert (await routing(client, door, "something else"))["by"] == "prefix"
    publisher(fleet[holder]).change(pieces_of("lifts"))

    async def captured() -> dict[str, str]:
        await asyncio.sleep(2.1)  # what was sent where is not expected there any more
        return await routing(client, door, "lifts")

    seen = await until(captured, lambda each: int(each["captured"]) > 0 and each["from"] == fleet[holder].name)
    assert seen["promised"] == seen["captured"] == str(max(pieces_of("lifts").values()))
    assert seen["replica"] == str(holder)
    stages = {
        stage: await metric(client, door, f'paternoster_gateway_cached_prompt_tokens_total{{model="m",stage="{stage}"')
        for stage in ("promised", "captured", "delivered")
    }
    assert stages["promised"] >= stages["captured"] > 0
    assert stages["delivered"] % 250 == 0
    assert await metric(client, door, "paternoster_gateway_routed_prompt_tokens_total{") % 300 == 0


async def test_a_snapshot_evictions_and_restarts_are_followed(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    lifts, trains = pieces_of("lifts"), pieces_of("trains")
    engine = await start("a", reports(0))
    engine.answers[paths.TEXT_CHAINS] = Publisher({**lifts})
    door.publish(engine, await start("b", reports(0)))
    pieces = "paternoster_gateway_indexed_pieces "
    await until(lambda: metric(client, door, pieces), lambda seen: seen == len(lifts))
    publisher(engine).change(trains, *lifts)
    await until(lambda: metric(client, door, pieces), lambda seen: seen == len(trains))
    # The connection breaks: it resumes, without a snapshot.
    before = len(publisher(engine).queries)
    publisher(engine).frames.put_nowait(None)
    await until(lambda: asyncio.sleep(0, len(publisher(engine).queries)), lambda seen: seen > before)
    assert publisher(engine).queries[before] == {"instance": "ab" * 16, "after": "1"}
    await until(lambda: metric(client, door, pieces), lambda seen: seen == len(trains))
    # The engine restarts, and has nothing.
    ended, engine.answers[paths.TEXT_CHAINS] = publisher(engine), Publisher({}, instance="cd" * 16)
    ended.frames.put_nowait(None)
    await until(lambda: metric(client, door, pieces), lambda seen: seen == 0)
    await whole(client, door, 1)
    assert await metric(client, door, "paternoster_gateway_text_chain_faults_total") == 0


async def test_a_replica_without_a_stream_is_believed_for_a_while_then_forgotten(
    client: aiohttp.ClientSession,
    door: Door,
    fleet: tuple[FakeEngine, FakeEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await whole(client, door, 2)
    stream, trains = publisher(fleet[0]), pieces_of("trains")
    stream.change(pieces_of("lifts"))
    pieces, away = "paternoster_gateway_indexed_pieces ", 'paternoster_gateway_text_chain_faults_total{reason="away"'
    await until(lambda: metric(client, door, pieces), lambda seen: seen == len(pieces_of("lifts")))
    refused = 0

    async def refuse(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        nonlocal refused
        refused += 1
        return web.Response(status=503)

    fleet[0].answers[paths.TEXT_CHAINS] = refuse
    stream.frames.put_nowait(None)
    await until(lambda: asyncio.sleep(0, refused), lambda seen: seen > 3)
    assert await metric(client, door, pieces) == len(pieces_of("lifts"))
    with monkeypatch.context() as at_once:
        at_once.setattr(follower, "STALE_SECONDS", 0.0)
        await until(lambda: metric(client, door, pieces), lambda seen: seen == 0)
    assert await metric(client, door, away) == 1
    # It comes back with other texts, and the numbers of many changes later.
    stream.held, stream.sequence = trains, 1000
    fleet[0].answers[paths.TEXT_CHAINS] = stream
    await until(lambda: metric(client, door, pieces), lambda seen: seen == len(trains))
    assert stream.queries[-1] == {}
    assert await metric(client, door, away) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("gap", "gap"),
        (b"\xff" * 400, "garbage"),
        ("model", "model"),
        ("version", "version"),
        (b"\x01\0\0\0\x02{}", "garbage"),
    ],
)
async def test_a_stream_with_a_fault_is_dropped_counted_and_read_anew(
    client: aiohttp.ClientSession, door: Door, fleet: tuple[FakeEngine, FakeEngine], fault: Any, reason: str
) -> None:
    await whole(client, door, 2)
    stream = publisher(fleet[0])
    match fault:
        case "gap":
            stream.change({1: 16}, skips=1)
        case "model":
            stream.model = "another"
            stream.instance = "cd" * 16
            stream.frames.put_nowait(None)
        case "version":
            stream.version = VERSION - 1
            stream.instance = "cd" * 16
            stream.frames.put_nowait(None)
        case _:
            stream.frames.put_nowait(fault)
    name = f'paternoster_gateway_text_chain_faults_total{{reason="{reason}"'
    await until(lambda: metric(client, door, name), lambda seen: seen >= 1)
    stream.model, stream.version = "m", VERSION
    await whole(client, door, 2)
    assert stream.queries[-1] == {}
    async with asking(client, door, "requests go on"):
        pass


async def test_other_engines_get_a_text_again_that_they_were_sent(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    one, two = await start("a-pod", reports(250)), await start("b-pod", reports(250))
    door.publish(one, two)
    await until(lambda: models(client, door), lambda seen: "m" in seen)
    for topic in ("lifts", "doors", "floors"):
        first, *more = [await routing(client, door, topic) for _ in range(4)]
        assert {seen["from"] for seen in more} == {first["from"]}
        assert [int(seen["captured"]) > 0 for seen in (first, *more)] == [False, True, True, True]
        # Clients get no name of a pod.
        assert {seen["replica"] for seen in more} == {str(["a-pod", "b-pod"].index(first["from"]))}
    short = [await routing(client, door, "") for _ in range(2)]
    assert {seen["by"] for seen in short} == {"load"}
    async with client.post(door.url + PATH, json=body("lifts")) as response:
        assert ROUTING not in response.headers


async def test_only_the_first_bytes_of_a_replica_are_read_in_all_spare_time(
    client: aiohttp.ClientSession, door: Door, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare: list[bool] = []

    run = follower.LoopShare.run

    async def run_recorded(share: follower.LoopShare, step: Callable[[], Any], *, ends_when_idle: bool) -> Any:
        spare.append(ends_when_idle)
        return await run(share, step, ends_when_idle=ends_when_idle)

    # Also over connections: an engine that ends each gets no more of it.
    monkeypatch.setattr(follower.LoopShare, "run", run_recorded)
    monkeypatch.setattr(follower, "FIRST_BYTES", 100_000)
    engine = await start("a", reports(0))
    engine.answers[paths.TEXT_CHAINS] = stream = Publisher(dict.fromkeys(range(2000), 16))
    door.publish(engine)
    await whole(client, door, 1)
    assert all(spare)
    stream.instance, stream.held = "cd" * 16, dict.fromkeys(range(9000), 16)
    stream.frames.put_nowait(None)
    pieces = "paternoster_gateway_indexed_pieces "
    await until(lambda: metric(client, door, pieces), lambda seen: seen == 9000)
    assert spare == sorted(spare, reverse=True)
    assert not spare[-1]


async def test_what_has_left_the_table_is_not_followed(
    client: aiohttp.ClientSession, door: Door, fleet: tuple[FakeEngine, FakeEngine]
) -> None:
    await whole(client, door, 2)
    publisher(fleet[0]).change(pieces_of("lifts"))
    door.publish(fleet[1])
    await whole(client, door, 1)
    assert await metric(client, door, "paternoster_gateway_indexed_pieces ") == 0


async def test_engines_get_the_gateways_key(client: aiohttp.ClientSession, keyed_door: Door, start: Start) -> None:
    engine = await start("a", reports(0))
    engine.answers[paths.TEXT_CHAINS] = Publisher({})
    keyed_door.publish(engine, fleet="uid")
    await whole(client, keyed_door, 1)
    assert publisher(engine).keys == [f"Bearer {derive_key('first', GATEWAY_TO_ENGINE, 'uid')}"]


async def test_a_flood_of_changes_leaves_the_gateway_two_thirds_of_its_loop(
    client: aiohttp.ClientSession, door: Door, fleet: tuple[FakeEngine, FakeEngine]
) -> None:
    await whole(client, door, 2)
    stream = publisher(fleet[0])
    for number in range(1, 200):
        stream.change({(number << 32) + at * 7919: 16 for at in range(2000)})
    for _ in range(10):
        async with asking(client, door, "requests go on"):
            pass
    refused = "paternoster_gateway_indexed_pieces_refused "
    await until(lambda: metric(client, door, refused), lambda seen: seen > 0, 200)
    assert await metric(client, door, "paternoster_gateway_indexed_pieces ") <= 2**18


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
async def test_an_engine_of_another_version_serves_and_is_seldom_asked_again(
    client: aiohttp.ClientSession,
    door: Door,
    fleet: tuple[FakeEngine, FakeEngine],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    monkeypatch.setattr(follower, "UNPUBLISHED_SECONDS", 600.0)
    await whole(client, door, 2)
    stream = publisher(fleet[0])
    stream.version, stream.instance = version, "cd" * 16
    stream.frames.put_nowait(None)
    await whole(client, door, 1)
    faults = 'paternoster_gateway_text_chain_faults_total{reason="version"'
    await until(lambda: metric(client, door, faults), lambda seen: seen == 1)
    requests = len(stream.queries)
    for topic in ("lifts", "doors", "floors", "cars"):
        async with asking(client, door, topic):
            await asyncio.sleep(0.1)  # twice the longest pause before a stream that ended
    assert len(stream.queries) == requests
