"""Batches from their claim to their end: what the gateway gets, and what stops, expires, fails or is repeated."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web
from tests.batch.conftest import ENDPOINT, Service, StubGateway, ended, lines, serving, submit, until

from paternoster_batch import runner as runner_module
from paternoster_batch import store as store_module
from paternoster_batch.gateway_client import count_tokens
from paternoster_batch.line_format import line_id, line_seed
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import BATCH_TO_GATEWAY, digest_key, find_vouched


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "FIRST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(runner_module, "LONGEST_BACKOFF_SECONDS", 0.1)
    monkeypatch.setattr(runner_module, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(runner_module, "LOOK_SECONDS", 0.1)


async def read_lines(service: Service, file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    return [json.loads(each) for each in (await service.client().files.content(file)).text.splitlines()]


async def test_lines_are_ordinary_requests_with_a_seed_and_an_id(service: Service) -> None:
    client = service.client()
    batch = await ended(client, await submit(client, lines(2) + lines(1, seed=7).replace(b"id-0", b"own")))
    sent = {each["messages"][0]["content"] + str(each["seed"]): each for each in service.gateway.bodies}
    assert set(sent) == {f"0{line_seed(batch.id, 1)}", f"1{line_seed(batch.id, 2)}", "07"}
    assert all(set(each) == {"model", "messages", "seed"} for each in sent.values())
    assert all(each.path == "/v1/chat/completions" for each in service.gateway.requests)
    ids = {each.headers["X-Request-Id"] for each in service.gateway.requests}
    assert ids == {line_id(batch.id, number) for number in (1, 2, 3)}
    assert not any("Authorization" in each.headers for each in service.gateway.requests)


async def test_a_body_is_sent_no_longer_than_it_came(service: Service) -> None:
    body = json.dumps(
        {"model": "tiny", "seed": 1, "messages": ["ä€😀\ud800" * 1000]}, ensure_ascii=False, separators=(",", ":")
    )
    line = f'{{"custom_id":"id","method":"POST","url":"/v1/chat/completions","body":{body}}}\n'
    client = service.client()
    await ended(client, await submit(client, line.encode(errors="backslashreplace")))
    sizes = [each.content_length for each in service.gateway.requests]
    assert sizes == [len(body.encode(errors="backslashreplace"))]


async def test_lines_of_a_keyed_owner_have_a_key_made_for_it(tmp_path: Path, gateway: StubGateway) -> None:
    for name, text in (("keys", "client's\n"), ("roots", "first\nsecond\n")):
        (tmp_path / name).write_text(text)
    roots = KeyFiles(tmp_path / "roots")
    # The gateway has the second root alone, as for a while when roots are exchanged.
    digest = digest_key("client's")
    gateway.refuse = lambda number: (
        web.json_response({"error": {"message": "no"}}, status=401)
        if find_vouched(gateway.requests[number].headers, ["second"], BATCH_TO_GATEWAY) != digest
        else None
    )
    async with serving(tmp_path / "data", gateway, KeyFiles(tmp_path / "keys"), roots=roots) as service:
        client = service.client("client's")
        batch = await ended(client, await submit(client, lines(1)))
    assert (batch.status, batch.request_counts.completed) == ("completed", 1)
    stored = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert stored
    assert not any(b"client's" in path.read_bytes() for path in stored)


async def test_no_more_lines_are_sent_at_once_than_may_be(service: Service) -> None:
    client = service.client()
    batches = [await submit(client, lines(20)) for _ in range(3)]
    for batch in batches:
        assert (await ended(client, batch)).request_counts.completed == 20
    assert service.gateway.most_at_once <= 4


async def test_refused_lines_are_sent_again_as_the_gateway_asks(service: Service) -> None:
    def refuse(number: int) -> web.Response | None:
        if number >= 6:
            return None
        return web.Response(status=(429, 503)[number % 2], headers={"Retry-After": "0"} if number % 3 else {})

    service.gateway.refuse = refuse
    client = service.client()
    batch = await ended(client, await submit(client, lines(4)))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (4, 0)
    assert len(service.gateway.bodies) == 10
    # A repeat is the same request.
    assert len({json.dumps(each) for each in service.gateway.bodies}) == 4


async def test_a_line_that_waits_keeps_none_of_another_batch_waiting(service: Service) -> None:
    def refuse(number: int) -> web.Response | None:
        is_slow = service.gateway.bodies[number].get("slow")
        return web.Response(status=503, headers={"Retry-After": "60"}) if is_slow else None

    service.gateway.refuse = refuse
    client = service.client()
    slow = await submit(client, lines(50, slow=True), window="1h")
    await until(_async(lambda: len(service.gateway.bodies)), lambda count: count >= 4)
    assert (await ended(client, await submit(client, lines(3)))).status == "completed"
    assert (await client.batches.retrieve(slow)).status == "in_progress"


async def test_a_cancelled_batch_keeps_what_was_answered(service: Service) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.client()
    batch = await submit(client, lines(10))
    await until(_async(lambda: len(service.gateway.bodies)), lambda count: count == 4)
    service.gateway.gate.set()
    service.gateway.gate = asyncio.Event()
    seen = await until(lambda: client.batches.retrieve(batch), lambda seen: seen.request_counts.completed == 4)
    assert seen.status == "in_progress"
    await until(_async(lambda: len(service.gateway.bodies)), lambda count: count == 8)
    assert (await client.batches.cancel(batch)).status == "cancelling"
    cancelled = await ended(client, batch)
    assert (cancelled.status, cancelled.request_counts.completed, cancelled.request_counts.failed) == (
        "cancelled",
        4,
        6,
    )
    await until(_async(lambda: service.gateway.gone), lambda gone: gone == 4)
    assert len(service.gateway.bodies) == 8
    output = await read_lines(service, cancelled.output_file_id)
    errors = await read_lines(service, cancelled.error_file_id)
    assert len({each["custom_id"] for each in output + errors}) == 10
    assert {(each["response"], each["error"]["code"]) for each in errors} == {(None, "batch_cancelled")}
    async with httpx.AsyncClient(base_url=service.url) as http:
        assert (await http.post(f"/v1/batches/{batch}/cancel")).json()["status"] == "cancelled"


async def test_an_ended_batch_cannot_be_cancelled(service: Service) -> None:
    client = service.client()
    batch = await ended(client, await submit(client, lines(1)))
    async with httpx.AsyncClient(base_url=service.url) as http:
        answer = await http.post(f"/v1/batches/{batch.id}/cancel")
    assert answer.status_code == 409
    assert answer.json()["error"]["message"].startswith("the batch is completed: ")


async def test_a_batch_expires_at_its_deadline(tmp_path: Path, gateway: StubGateway) -> None:
    async with serving(tmp_path / "data", gateway) as service:
        client = service.client()
        gateway.refuse = lambda number: web.Response(status=503) if number else None
        batch = await submit(client, lines(5), window="15m")
        await until(lambda: client.batches.retrieve(batch), lambda seen: seen.request_counts.completed == 1)
    async with serving(tmp_path / "data", gateway, ahead=15 * 60 - 5) as service:
        expired = await ended(service.client(), batch)
        errors = await read_lines(service, expired.error_file_id)
        assert len(await read_lines(service, expired.output_file_id)) == 1
    assert (expired.status, expired.request_counts.completed, expired.request_counts.failed) == ("expired", 1, 4)
    assert expired.expired_at >= expired.expires_at
    assert {each["error"]["code"] for each in errors} == {"batch_expired"}


async def change_window(service: Service, batch: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.url) as http:
        return await http.patch(f"/v1/batches/{batch}", json=body)


async def test_a_batch_with_a_shorter_window_expires_at_its_new_deadline(tmp_path: Path, gateway: StubGateway) -> None:
    gateway.gate = asyncio.Event()
    async with serving(tmp_path / "data", gateway) as service:
        batch = await submit(service.client(), lines(2), window="30d")
    async with serving(tmp_path / "data", gateway, ahead=15 * 60 - 5) as service:
        await until(_async(lambda: len(gateway.bodies)), lambda count: count >= 2)
        answer = await change_window(service, batch, {"completion_window": "15m"})
        assert answer.json()["expires_at"] == answer.json()["created_at"] + 15 * 60
        expired = await ended(service.client(), batch)
    assert (expired.status, expired.completion_window, expired.request_counts.failed) == ("expired", "15m", 2)
    assert expired.expired_at >= expired.expires_at


async def test_a_batch_with_a_longer_window_goes_on_behind_its_old_deadline(
    tmp_path: Path, gateway: StubGateway
) -> None:
    gateway.gate = asyncio.Event()
    async with serving(tmp_path / "data", gateway) as service:
        batch = await submit(service.client(), lines(2), window="15m")
        created = (await service.client().batches.retrieve(batch)).created_at
    ahead = 15 * 60 - 5
    async with serving(tmp_path / "data", gateway, ahead=ahead) as service:
        await until(_async(lambda: len(gateway.bodies)), lambda count: count >= 2)
        assert (await change_window(service, batch, {"completion_window": "2d"})).status_code == 200
        await until(_async(lambda: time.time() + ahead), lambda now: now > created + 15 * 60 + 1)
        gateway.gate.set()
        done = await ended(service.client(), batch)
    assert (done.status, done.completion_window, done.request_counts.completed) == ("completed", "2d", 2)
    assert done.expires_at == created + 2 * 86_400


async def test_a_window_that_cannot_be_is_refused(tmp_path: Path, gateway: StubGateway) -> None:
    gateway.gate = asyncio.Event()
    async with serving(tmp_path / "data", gateway) as service:
        batch = await submit(service.client(), lines(1), window="1d")
    async with serving(tmp_path / "data", gateway, ahead=3600) as service:
        for body, words in (
            ({"completion_window": "14m"}, "completion_window is '14m': must be minutes, hours or days"),
            ({"completion_window": "1h"}, f"completion_window is '1h': it would be over, {batch} is older"),
            ({"completion_window": 7}, "completion_window: "),
            ({"completion_window": "2h", "status": "completed"}, "status: "),
            ({}, "completion_window: Field required"),
        ):
            answer = await change_window(service, batch, body)
            assert (answer.status_code, answer.json()["error"]["message"].startswith(words)) == (400, True), words
        assert (await change_window(service, "none", {"completion_window": "1d"})).status_code == 404
        gateway.gate.set()
        await ended(service.client(), batch)
        answer = await change_window(service, batch, {"completion_window": "1d"})
        assert (answer.status_code, answer.json()["error"]["message"].partition(":")[0]) == (
            409,
            "the batch is completed",
        )


async def test_results_are_read_while_more_of_them_come(service: Service) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.client()
    batch = await submit(client, lines(8))
    await until(_async(lambda: len(service.gateway.bodies)), lambda count: count == 4)
    service.gateway.gate.set()
    service.gateway.gate = asyncio.Event()
    await until(lambda: client.batches.retrieve(batch), lambda seen: seen.request_counts.completed == 4)
    async with httpx.AsyncClient(base_url=f"{service.url}/v1/batches/{batch}") as http:
        first = (await http.get("/results")).text.splitlines()
        assert len(first) == 4
        service.gateway.gate.set()
        service.gateway.gate = None
        done = await ended(client, batch)
        rest = (await http.get("/results", params={"after": 4})).text.splitlines()
        refused = await http.get("/results", params={"after": "x"})
    assert refused.status_code == 400
    output = await read_lines(service, done.output_file_id)
    assert sorted(map(json.dumps, output)) == sorted(json.dumps(json.loads(each)) for each in first + rest)


async def test_an_answer_that_cannot_be_kept_fails_its_line(service: Service) -> None:
    texts = [b"no JSON", b"[" * 100_000, b'{"a":"' + b"x" * 9 * 2**20 + b'"}']
    service.gateway.refuse = lambda number: web.Response(body=texts[number], content_type="application/json")
    client = service.client()
    batch = await ended(client, await submit(client, lines(3)))
    errors = await read_lines(service, batch.error_file_id)
    assert [each["error"]["code"] for each in errors] == ["invalid_answer"] * 3
    assert batch.request_counts.failed == 3


async def test_a_gateway_that_is_not_there_is_waited_for(tmp_path: Path, gateway: StubGateway) -> None:
    url, gateway.url = gateway.url, "http://127.0.0.1:1"
    async with serving(tmp_path / "data", gateway) as service:
        client = service.client()
        batch = await submit(client, lines(1))
        await asyncio.sleep(0.2)
        assert (await client.batches.retrieve(batch)).status == "validating"
    gateway.url = url
    async with serving(tmp_path / "data", gateway) as service:
        assert (await ended(service.client(), batch)).status == "completed"


async def test_a_service_that_ends_leaves_the_rest_to_the_next(tmp_path: Path, gateway: StubGateway) -> None:
    gateway.gate = asyncio.Event()
    async with serving(tmp_path / "data", gateway) as service:
        batch = await submit(service.client(), lines(6))
        await until(_async(lambda: len(gateway.bodies)), lambda count: count == 4)
    gateway.gate = None
    async with serving(tmp_path / "data", gateway) as service:
        done = await ended(service.client(), batch)
        assert (done.status, done.request_counts.completed) == ("completed", 6)


async def test_a_full_disk_loses_no_result(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LEASE_SECONDS", 0.5)
    full, failures = True, 0

    def write_point(point: str) -> None:
        nonlocal failures
        if full and point == "sync results":
            failures += 1
            raise OSError(28, "No space left on device")

    service.store.write_point = write_point
    client = service.client()
    batch = await submit(client, lines(6))
    await until(_async(lambda: failures), lambda count: count > 0)
    full = False
    done = await ended(client, batch)
    assert (done.status, done.request_counts.completed) == ("completed", 6)
    assert len(await read_lines(service, done.output_file_id)) == 6


async def test_with_little_space_nothing_is_sent(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    client = service.client()
    file = await client.files.create(file=("in.jsonl", lines(1)), purpose="batch")
    monkeypatch.setattr(runner_module, "MIN_FREE_BYTES", 2**60)
    batch = (await client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")).id
    await asyncio.sleep(0.3)
    assert (await client.batches.retrieve(batch)).status == "validating"
    monkeypatch.setattr(runner_module, "MIN_FREE_BYTES", 0)
    assert (await ended(client, batch)).status == "completed"


async def test_lines_of_a_batch_that_runs_wait_for_space(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.client()
    batch = await submit(client, lines(10))
    await until(_async(lambda: len(service.gateway.bodies)), lambda count: count == 4)
    monkeypatch.setattr(runner_module, "MIN_FREE_BYTES", 2**60)
    service.gateway.gate.set()
    await until(lambda: client.batches.retrieve(batch), lambda seen: seen.request_counts.completed == 4)
    await asyncio.sleep(0.5)
    assert len(service.gateway.bodies) == 4
    with pytest.raises(openai.InternalServerError, match="is nearly full") as refused:
        await submit(client, lines(1))
    assert refused.value.status_code == 507
    monkeypatch.setattr(runner_module, "MIN_FREE_BYTES", 0)
    assert (await ended(client, batch)).request_counts.completed == 10
    changes = [each.getMessage() for each in caplog.records if "volume" in each.getMessage()]
    assert [change.split(":")[0] for change in changes] == ["the volume is nearly full", "the volume has space again"]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, (3, 0, 4, 0)),
        ({"output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 2}}, (0, 0, 4, 2)),
        ({"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 1}}, (3, 1, 4, 0)),
        ({"prompt_tokens": True, "completion_tokens": -1, "prompt_tokens_details": 5}, (0, 0, 0, 0)),
        ({"prompt_tokens": 2**60}, (0, 0, 0, 0)),
        ({"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 4}, (8, 5, 4, 0)),
        ({"input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": None}, (8, 0, 0, 0)),
        (None, (0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_tokens_are_counted_by_the_names_of_each_api(usage: object, counted: tuple[int, ...]) -> None:
    assert count_tokens({"usage": usage}) == counted
    assert count_tokens([usage]) == (0, 0, 0, 0)


def _async(read):  # type: ignore[no-untyped-def]
    async def call():  # type: ignore[no-untyped-def]
        return read()

    return call
