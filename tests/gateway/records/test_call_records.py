"""``GET /debug/requests``: the true cause of five planted slow calls, who may read records, and what bounds them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import httpx
import pytest
from aiohttp import web
from starlette.applications import Starlette
from tests.gateway.fakes import Door, serving_table

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import READER_TO_GATEWAY, derive_key, digest_key
from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS, REQUEST_ID
from paternoster_contract.request_phases import PHASES, RequestPhases, WaitReason
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.records.call_record import CallRecords
from paternoster_gateway.records.routes import build_record_routes

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"
STEP_SECONDS = 0.1
PROMPT = 300
SECRET = "the word that no record has"
KEYS: dict[str, Any] = {
    "key_digests": [digest_key("flood"), digest_key("rider")],
    "identities": {digest_key("flood"): Identity(tenant="flood"), digest_key("rider"): Identity(tenant="rider")},
}


class OneAtATime:
    """An engine of one sequence with a prefix cache, which states where the time of each call went."""

    def __init__(self, *, preemptions: int = 0) -> None:
        self.cached: set[str] = set()
        self._slot = asyncio.Semaphore(1)
        self._preemptions = preemptions

    async def __call__(self, engine: FakeEngine, _: web.Request) -> web.StreamResponse:
        clock = asyncio.get_running_loop().time
        text, arrival = engine.bodies[-1].decode(), clock()
        async with self._slot:
            admitted = clock()
            cached = PROMPT - 10 if text in self.cached else 0
            self.cached.add(text)
            await asyncio.sleep(STEP_SECONDS * ((1 + self._preemptions) if not cached else 0))
            waited_for = WaitReason.SLOTS if admitted - arrival > STEP_SECONDS / 2 else WaitReason.STEP
            phases = RequestPhases(admitted - arrival, waited_for, clock() - admitted, self._preemptions)
        headers = {PROMPT_TOKENS: str(PROMPT), CACHED_TOKENS: str(cached), PHASES: phases.encode()}
        return web.json_response({"from": engine.name}, headers=headers)


async def close_late(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    """Close the connection in place of an answer."""
    await asyncio.sleep(3 * STEP_SECONDS)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def body(topic: str) -> dict[str, Any]:
    text = f"{SECRET}. All about {topic}. " + " ".join(f"{topic} {number}" for number in range(120))
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


async def publish(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine, **fields: Any) -> None:
    """Make these engines the replicas of model m, and wait until the gateway has read that."""
    door.publish(*engines, **fields)
    while True:
        async with client.get(f"{door.url}/v1/models", headers={"Authorization": "Bearer rider"}) as response:
            if response.status == 200 and (await response.json())["data"]:
                return
        await asyncio.sleep(0.02)


async def call(
    client: aiohttp.ClientSession, door: Door, request_id: str, topic: str = "lifts", key: str = ""
) -> aiohttp.ClientResponse:
    headers = {REQUEST_ID: request_id} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with client.post(door.url + PATH, json=body(topic), headers=headers) as response:
        await response.read()
        assert PHASES not in response.headers
        return response


async def read_records(client: aiohttp.ClientSession, door: Door, what: str, key: str = "") -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with client.get(f"{door.url}/debug/requests{what}", headers=headers) as response:
        assert response.status == 200, await response.text()
        assert SECRET not in await response.text()
        found: list[dict[str, Any]] = (await response.json())["requests"]
        return found


async def find_cause(client: aiohttp.ClientSession, door: Door, request_id: str) -> tuple[str, str]:
    (record,) = await read_records(client, door, f"/{request_id}")
    assert record["status"] == 200
    return record["cause"]["name"], record["cause"]["why"]


async def test_a_queue_behind_a_flood(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    engine = await start("a", OneAtATime())
    await publish(client, door, engine, **KEYS)
    flood = [asyncio.create_task(call(client, door, f"f{i}", f"flood {i}", "flood")) for i in range(6)]
    while len(engine.bodies) < len(flood):
        await asyncio.sleep(0.01)
    await call(client, door, "slow", "lifts", "rider")
    await asyncio.gather(*flood)
    name, why = await find_cause(client, door, "slow")
    assert name == "engine_queue"
    assert "in the queue of a for slots" in why
    assert "(flood " in why
    (slowest,) = await read_records(client, door, "?slowest=1&tenant=rider")
    assert slowest["id"] == "slow"
    assert [each["tenant"] for each in await read_records(client, door, "?tenant=flood")] == ["flood"] * 6


async def test_a_cache_that_a_restart_emptied(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    lifts = OneAtATime(), OneAtATime()
    await publish(client, door, await start("a", lifts[0]), await start("b", lifts[1]))
    for number in range(3):
        await call(client, door, f"before-{number}")
    for lift in lifts:
        lift.cached.clear()
    await call(client, door, "slow")
    name, why = await find_cause(client, door, "slow")
    assert name == "cache_miss"
    assert f"0 of {PROMPT} prompt tokens were cached" in why


async def test_a_preemption(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    await publish(client, door, await start("a", OneAtATime(preemptions=2)))
    await call(client, door, "slow")
    name, why = await find_cause(client, door, "slow")
    assert (name, why.endswith("preempted 2 times at a")) == ("preemption", True)


async def test_a_cold_start(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    engine = await start("a", OneAtATime())
    await publish(client, door, engine, ready=False)
    held = asyncio.create_task(call(client, door, "slow"))
    while True:
        async with client.get(f"{door.url}/stats") as response:
            if (await response.json())["models"].get("m", {}).get("held"):
                break
        await asyncio.sleep(0.02)
    await asyncio.sleep(5 * STEP_SECONDS)
    door.publish(engine)
    await held
    name, why = await find_cause(client, door, "slow")
    assert (name, why.endswith("until a replica was ready; 0 of 1 were")) == ("cold_start", True)


async def test_a_replica_that_was_ejected(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    await publish(client, door, await start("a", close_late), await start("b", OneAtATime()))
    for number in range(8):
        await call(client, door, f"r{number}", f"topic {number}")
    records = [(await read_records(client, door, f"/r{number}"))[0] for number in range(8)]
    slow = next(each for each in records if len(each["attempts"]) > 1)
    assert slow["cause"]["name"] == "replica_failed"
    assert "a (unreachable)" in slow["cause"]["why"]


async def test_a_prompt_that_is_computed(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    """The cause is named after the phase: whether the prompt is long or its steps are slow is not seen here."""
    await publish(client, door, await start("a", OneAtATime()))
    await call(client, door, "slow")
    name, why = await find_cause(client, door, "slow")
    assert name == "prefill"
    assert why.endswith(f"computing the prompt: 0 of {PROMPT} prompt tokens were cached")


async def test_expected_seconds_are_beside_the_measured(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    await publish(client, door, await start("a", OneAtATime()), await start("b", OneAtATime()))
    for number in range(14):
        await call(client, door, f"r{number}", f"topic {number}")
    records = await read_records(client, door, "?slowest=20")
    attempts = {each["id"]: each["attempts"][-1] for each in records}
    assert attempts["r0"]["expected_seconds"] is None
    assert attempts["r13"]["expected_seconds"] > 0
    assert attempts["r13"]["by"] == "prefix"
    assert len(attempts["r13"]["nearest"]) == attempts["r13"]["candidates"] == 2


async def test_only_who_has_the_root_key_reads_records(
    client: aiohttp.ClientSession, keyed_door: Door, start: Start
) -> None:
    await publish(client, keyed_door, await start("a", OneAtATime()), **KEYS)
    await call(client, keyed_door, "one", key="rider")
    for key in ("", "rider", "first", derive_key("second", READER_TO_GATEWAY)):
        for path in ("", "/one"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with client.get(f"{keyed_door.url}/debug/requests{path}", headers=headers) as response:
                assert (response.status, "rider" in await response.text()) == (401, False)
    (record,) = await read_records(client, keyed_door, "/one", derive_key("first", READER_TO_GATEWAY))
    assert (record["tenant"], record["status"]) == ("rider", 200)


async def test_without_a_root_key_in_its_file_nobody_reads_records(tmp_path: Path) -> None:
    app = Starlette(routes=build_record_routes(CallRecords(), KeyFiles(tmp_path / "missing")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        for path in ("", "/one"):
            assert (await client.get(f"/debug/requests{path}")).status_code == 401


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/" + "x" * 2000, 400, "the id has 2000 characters: must have at most 128"),
        ("/" + "x" * 10_000, 414, ""),
        ("/unknown", 404, "no such call has ended here"),
        ("?slowest=0", 400, "slowest: is '0': must be a whole number from 1 to 100"),
        ("?slowest=" + "9" * 5000, 400, "must be a whole number from 1 to 100"),
        ("?slowest=²", 400, "slowest: is"),
    ],
)
async def test_bad_questions(client: aiohttp.ClientSession, door: Door, path: str, status: int, message: str) -> None:
    async with client.get(f"{door.url}/debug/requests{path}") as response:
        assert response.status == status
        assert message in (await response.json())["error"]["message"]


async def test_ids_of_clients(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    """A client's id is found whatever characters it has; one that is too long is replaced."""
    await publish(client, door, await start("a", OneAtATime()), **KEYS)
    for request_id in ("a/b?c=d&%2e%", "../stats"):
        await call(client, door, request_id, key="rider")
        (record,) = await read_records(client, door, "/" + quote(request_id, safe=""))
        assert record["id"] == request_id
    given = (await call(client, door, "x" * 10_000, key="rider")).headers[REQUEST_ID]
    assert len(given) == 32
    assert [each["id"] for each in await read_records(client, door, f"/{given}")] == [given]
    await call(client, door, "same", key="rider")
    await call(client, door, "same", key="flood")
    assert {each["tenant"] for each in await read_records(client, door, "/same")} == {"rider", "flood"}


async def test_a_call_without_an_answer_has_a_record(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    engine = await start("a", OneAtATime())
    await publish(client, door, engine, ready=False, hold=False)
    assert (await call(client, door, "refused")).status == 503
    (record,) = await read_records(client, door, "/refused")
    assert (record["status"], record["attempts"]) == (503, [])


async def test_a_call_whose_client_left_has_a_record(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    await publish(client, door, await start("a", OneAtATime()), ready=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call(client, door, "left"), 0.5)
    while not (found := [each for each in await read_records(client, door, "?slowest=9") if each["id"] == "left"]):
        await asyncio.sleep(0.02)
    assert found[0]["cause"]["name"] == "cold_start"


async def test_records_are_bounded_and_shared_out_by_tenant(
    client: aiohttp.ClientSession, table: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood takes no other tenant's records, and no record is longer than its share of memory."""
    monkeypatch.setattr("paternoster_gateway.app.CallRecords", lambda: CallRecords(capacity=4))
    async with serving_table(table) as url:
        door = Door(url, table)
        await publish(client, door, await start("a", OneAtATime()), **KEYS)
        for request_id, key in (("r0", "rider"), ("r1", "rider"), *((f"f{i}", "flood") for i in range(9))):
            await call(client, door, request_id, key=key)
        ids = {each["id"] for each in await read_records(client, door, "?slowest=100")}
    assert ids == {"r0", "r1", "f7", "f8"}
