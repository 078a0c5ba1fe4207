"""Anthropic's routes, as its own client and others use them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from aiohttp import web
from tests.batch.conftest import MODEL, Service, StubGateway, lines, send_until_refused, serving, submit, until

from paternoster_batch import message_routes
from paternoster_batch import runner as runner_module
from paternoster_batch.line_format import line_id
from paternoster_contract.access.key_files import KeyFiles


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "FIRST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(runner_module, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(runner_module, "LOOK_SECONDS", 0.1)


def requests(*custom_ids: str, **params: Any) -> Any:
    whole = {"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]} | params
    return [{"custom_id": custom_id, "params": whole} for custom_id in custom_ids]


async def create(client: anthropic.AsyncAnthropic, *custom_ids: str, **params: Any) -> str:
    return (await client.messages.batches.create(requests=requests(*custom_ids, **params))).id


async def ended(client: anthropic.AsyncAnthropic, batch: str) -> Any:
    return await until(lambda: client.messages.batches.retrieve(batch), lambda seen: seen.processing_status == "ended")


async def read_results(client: anthropic.AsyncAnthropic, batch: str) -> dict[str, Any]:
    return {each.custom_id: each.result async for each in await client.messages.batches.results(batch)}


async def count_sent(service: Service, count: int) -> None:
    async def read() -> int:
        return len(service.gateway.bodies)

    await until(read, lambda sent: sent == count)


async def test_a_message_batch_from_its_requests_to_its_results(service: Service) -> None:
    service.gateway.models = (MODEL, "other")
    client = service.anthropic_client()
    wanted = requests("one", "two") + requests("bad", bad=True) + requests("other", model="other")
    created = await client.messages.batches.create(requests=wanted)
    assert (created.type, created.processing_status) == ("message_batch", "in_progress")
    assert created.request_counts.model_dump() == {
        "processing": 4, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0,
    }  # fmt: skip
    assert (created.expires_at - created.created_at).total_seconds() == 86_400
    assert (created.results_url, created.ended_at, created.archived_at, created.cancel_initiated_at) == (None,) * 4
    batch = await ended(client, created.id)
    assert batch.request_counts.model_dump() == {
        "processing": 0, "succeeded": 3, "errored": 1, "canceled": 0, "expired": 0,
    }  # fmt: skip
    assert batch.ended_at >= batch.created_at == created.created_at
    # Lines are ordinary requests with their ids.
    assert all(each.path == "/v1/messages" for each in service.gateway.requests)
    assert sorted(map(json.dumps, service.gateway.bodies)) == sorted(json.dumps(each["params"]) for each in wanted)
    ids = [line_id(batch.id, number) for number in (1, 2, 3, 4)]
    assert {each.headers["X-Request-Id"] for each in service.gateway.requests} == set(ids)
    results = await read_results(client, batch.id)
    assert list(results) == ["one", "two", "bad", "other"], "in the order of the requests"
    assert {name: result.type for name, result in results.items()} == {
        "one": "succeeded", "two": "succeeded", "bad": "errored", "other": "succeeded",
    }  # fmt: skip
    message = results["other"].message
    assert (message.model, message.usage.service_tier, message.usage.output_tokens) == ("other", "batch", 2)
    error = results["bad"].error
    assert (error.type, error.error.type, error.request_id) == ("error", "invalid_request_error", ids[2])
    deleted = await client.messages.batches.delete(batch.id)
    assert (deleted.id, deleted.type) == (batch.id, "message_batch_deleted")
    for call in (client.messages.batches.retrieve, client.messages.batches.delete, client.messages.batches.cancel):
        with pytest.raises(anthropic.NotFoundError):
            await call(batch.id)


async def test_what_a_deleted_batch_had_is_not_on_the_volume_any_more(service: Service, tmp_path: Path) -> None:
    client = service.anthropic_client()
    batch = await create(client, "secret-name", system="secret-text")
    await ended(client, batch)
    assert b"secret-text" in b"".join(path.read_bytes() for path in (tmp_path / "data/files").iterdir())
    await client.messages.batches.delete(batch)
    assert list((tmp_path / "data/files").iterdir()) == list((tmp_path / "data/results").iterdir()) == []


async def test_a_canceled_batch_keeps_what_was_answered(service: Service) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.anthropic_client()
    batch = await create(client, *map(str, range(10)))
    await count_sent(service, 4)
    service.gateway.gate.set()
    service.gateway.gate = asyncio.Event()
    await count_sent(service, 8)
    open_batch = await client.messages.batches.retrieve(batch)
    assert (open_batch.request_counts.processing, open_batch.results_url) == (10, None)
    async with httpx.AsyncClient(base_url=f"{service.url}/v1/messages/batches/{batch}") as http:
        refused = await http.get("/results")
        assert refused.status_code == 404
        assert refused.json()["error"] == {
            "type": "not_found_error", "message": f"{batch} is in_progress: it has results once it has ended",
        }  # fmt: skip
        assert refused.json()["request_id"] == refused.headers["request-id"]
    with pytest.raises(anthropic.ConflictError, match="the batch is in_progress") as conflict:
        await client.messages.batches.delete(batch)
    assert conflict.value.response.headers["x-should-retry"] == "false"
    canceling = await client.messages.batches.cancel(batch)
    assert canceling.processing_status == "canceling"
    assert canceling.cancel_initiated_at is not None
    done = await ended(client, batch)
    assert done.request_counts.model_dump() == {
        "processing": 0, "succeeded": 4, "errored": 0, "canceled": 6, "expired": 0,
    }  # fmt: skip
    kinds = [result.type for result in (await read_results(client, batch)).values()]
    assert (kinds.count("succeeded"), kinds.count("canceled")) == (4, 6)
    assert (await client.messages.batches.cancel(batch)).processing_status == "ended"


async def test_an_ended_batch_cannot_be_canceled(service: Service) -> None:
    client = service.anthropic_client()
    batch = await create(client, "a")
    await ended(client, batch)
    with pytest.raises(anthropic.ConflictError):
        await client.messages.batches.cancel(batch)


async def test_a_batch_expires_after_a_day(tmp_path: Path, gateway: StubGateway) -> None:
    async with serving(tmp_path / "data", gateway) as service:
        gateway.refuse = lambda number: web.Response(status=503) if number else None
        batch = await create(service.anthropic_client(), "a", "b", "c")

        async def read_completed() -> int:
            row = service.store.find_batch("", batch)
            assert row is not None
            return row.completed

        await until(read_completed, lambda completed: completed == 1)
    async with serving(tmp_path / "data", gateway, ahead=86_400) as service:
        client = service.anthropic_client()
        expired = await ended(client, batch)
        kinds = sorted(result.type for result in (await read_results(client, batch)).values())
    assert (expired.request_counts.succeeded, expired.request_counts.expired) == (1, 2)
    assert kinds == ["expired", "expired", "succeeded"]
    assert expired.ended_at >= expired.expires_at


@pytest.mark.parametrize(
    ("status", "text", "kind", "words"),
    [
        (200, b"no JSON", "api_error", "cannot be kept"),
        (404, b'{"detail": "none"}', "not_found_error", "the request was answered with 404"),
        (500, b'{"type": "error", "error": {"type": "api_error", "message": "ours"}}', "api_error", "ours"),
        (400, b"[]", "invalid_request_error", "the request was answered with 400"),
    ],
)
async def test_answers_that_are_no_message_are_errors_in_anthropics_form(
    service: Service, status: int, text: bytes, kind: str, words: str
) -> None:
    service.gateway.refuse = lambda _: web.Response(status=status, body=text, content_type="application/json")
    client = service.anthropic_client()
    batch = await create(client, "a")
    assert (await ended(client, batch)).request_counts.errored == 1
    result = (await read_results(client, batch))["a"]
    assert (result.type, result.error.type, result.error.error.type) == ("errored", "error", kind)
    assert words in result.error.error.message


async def test_batches_are_listed_in_pages_of_both_directions(service: Service) -> None:
    client = service.anthropic_client()
    created = {await create(client, "a") for _ in range(5)}
    whole = await client.messages.batches.list()
    order = [batch.id for batch in whole.data]
    assert set(order) == created
    assert (whole.has_more, whole.first_id, whole.last_id) == (False, order[0], order[-1])
    assert [batch.id async for batch in client.messages.batches.list(limit=2)] == order
    page = await client.messages.batches.list(limit=2, before_id=order[4])
    assert ([batch.id for batch in page.data], page.has_more) == (order[2:4], True)
    assert [batch.id async for batch in client.messages.batches.list(limit=2, before_id=order[4])] == [
        *order[2:4], *order[0:2],
    ]  # fmt: skip
    page = await client.messages.batches.list(limit=2, after_id=order[1])
    assert ([batch.id for batch in page.data], page.has_more) == (order[2:4], True)
    empty = await client.messages.batches.list(after_id=order[4])
    assert (empty.data, empty.has_more, empty.first_id) == ([], False, None)
    for query, words in (
        ({"limit": 1001}, "limit is '1001': must be from 1 to 1000"),
        ({"after_id": "none"}, "after_id is 'none': must be an id of this list"),
        ({"before_id": "none"}, "before_id is 'none': must be an id of this list"),
        ({"before_id": order[0], "after_id": order[1]}, "after_id and before_id: a page has one of them"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=words):
            await client.messages.batches.list(**query)  # type: ignore[arg-type]


async def test_a_batch_with_a_bad_request_is_refused_and_nothing_runs(service: Service, tmp_path: Path) -> None:
    client = service.anthropic_client()
    bad = requests("a", "a", "b") + requests("c", stream=True)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.messages.batches.create(requests=bad)
    assert refused.value.body == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": 'requests.1.custom_id: "a" is that of an earlier request; requests.3.params.stream: true: must '
            "be false, since a batch has no streams",
        },
        "request_id": refused.value.request_id,
    }
    assert service.gateway.bodies == list((tmp_path / "data/files").iterdir()) == []
    assert (await client.messages.batches.list()).data == []


async def test_models_that_are_not_served_refuse_the_batch(service: Service, tmp_path: Path) -> None:
    client = service.anthropic_client()
    some = requests("a") + requests("b", model="x") + requests("c", model='"y"') + requests("d", model="x")
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.messages.batches.create(requests=some)
    reason = "no model is served under this name"
    assert refused.value.message.partition("message': ")[2].startswith(
        f"""'requests.1.params.model is "x": {reason}; requests.2.params.model is "\\\\"y\\\\"": {reason}'"""
    ), refused.value.message
    assert service.gateway.bodies == list((tmp_path / "data/files").iterdir()) == []


@pytest.mark.parametrize("listens", [True, False])
async def test_a_gateway_that_does_not_answer_refuses_the_batch_for_now(
    listens: bool, tmp_path: Path, gateway: StubGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_routes, "MODEL_CHECK_SECONDS", 0.2 if listens else 60)
    server = await asyncio.start_server(lambda _, writer: silent.append(writer), "127.0.0.1", 0)
    silent: list[asyncio.StreamWriter] = []
    gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1] if listens else 1}"
    async with server, serving(tmp_path / "data", gateway) as service:
        with pytest.raises(anthropic.APIStatusError, match="the models cannot be checked yet") as refused:
            await create(service.anthropic_client(), "a")
        for writer in silent:
            writer.close()
    assert refused.value.status_code == 503
    assert refused.value.response.headers["Retry-After"] == "1"
    assert refused.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]


async def test_a_body_is_refused_while_it_is_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_routes, "MAX_BODY_BYTES", 2**20)
    head, body = await send_until_refused(service, "/v1/messages/batches", "application/json", b"{")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"] == {
        "type": "request_too_large", "message": f"the body is longer than {2**20} bytes",
    }  # fmt: skip

    async def list_left() -> list[Path]:
        return list((tmp_path / "data/files").iterdir())

    await until(list_left, lambda left: left == [])


async def test_another_key_finds_nothing(tmp_path: Path, gateway: StubGateway) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    (tmp_path / "roots").write_text("root\n")
    keys, roots = KeyFiles(tmp_path / "keys"), KeyFiles(tmp_path / "roots")
    async with serving(tmp_path / "data", gateway, keys, roots=roots) as service:
        one, two, other = map(service.anthropic_client, ("one", "two", "three"))
        batch = await create(one, "a")
        await ended(one, batch)
        for call in (
            two.messages.batches.retrieve, two.messages.batches.cancel, two.messages.batches.delete,
            two.messages.batches.results,
        ):  # fmt: skip
            with pytest.raises(anthropic.NotFoundError):
                await call(batch)
        async with httpx.AsyncClient(base_url=service.url, headers={"X-Api-Key": "two"}) as http:
            assert (await http.get(f"/v1/messages/batches/{batch}/results")).status_code == 404
        assert (await two.messages.batches.list()).data == []
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await other.messages.batches.list()
        assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
        assert list(await read_results(one, batch)) == ["a"]


async def test_neither_api_has_the_batches_of_the_other(service: Service) -> None:
    ours, theirs = service.anthropic_client(), service.client()
    message_batch, batch = await create(ours, "a"), await submit(theirs, lines(1))
    await ended(ours, message_batch)
    assert [each.id for each in (await ours.messages.batches.list()).data] == [message_batch]
    assert [each.id for each in (await theirs.batches.list()).data] == [batch]
    assert [each.purpose for each in (await theirs.files.list()).data if each.purpose != "batch_output"] == ["batch"]
    with pytest.raises(openai.NotFoundError):
        await theirs.batches.retrieve(message_batch)
    with pytest.raises(openai.NotFoundError):
        await theirs.batches.cancel(message_batch)
    for call in (ours.messages.batches.retrieve, ours.messages.batches.cancel, ours.messages.batches.delete):
        with pytest.raises(anthropic.NotFoundError):
            await call(batch)


async def test_a_service_that_starts_anew_goes_on_with_its_message_batches(
    tmp_path: Path, gateway: StubGateway
) -> None:
    gateway.gate = asyncio.Event()
    async with serving(tmp_path / "data", gateway) as service:
        batch = await create(service.anthropic_client(), *map(str, range(6)))
        await count_sent(service, 4)
    gateway.gate.set()
    async with serving(tmp_path / "data", gateway) as service:
        client = service.anthropic_client()
        assert (await ended(client, batch)).request_counts.succeeded == 6
        assert list(await read_results(client, batch)) == [str(number) for number in range(6)]
