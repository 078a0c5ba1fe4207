"""OpenAI's routes, as its own client and others use them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from tests.batch.conftest import (
    ENDPOINT,
    MODEL,
    Service,
    StubGateway,
    ended,
    lines,
    send_until_refused,
    serving,
    submit,
    until,
)  # fmt: skip

from paternoster_batch import app as app_module
from paternoster_batch import upload_form
from paternoster_contract.access.key_files import KeyFiles


async def test_a_batch_from_its_file_to_its_results(service: Service) -> None:
    client = service.client()
    content = lines(3)
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    assert (file.bytes, file.filename, file.purpose, file.object) == (len(content), "in.jsonl", "batch", "file")
    assert (await client.files.content(file.id)).content == content
    created = await client.batches.create(
        input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={"job": "night"}
    )
    assert (created.status, created.metadata) == ("validating", {"job": "night"})
    assert created.expires_at is not None
    assert created.expires_at - created.created_at == 86_400
    batch = await ended(client, created.id)
    assert (batch.status, batch.errors, batch.error_file_id) == ("completed", None, None)
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (3, 3, 0)
    assert (batch.usage.input_tokens, batch.usage.output_tokens, batch.usage.total_tokens) == (15, 6, 21)
    assert batch.usage.input_tokens_details.cached_tokens == 3
    assert batch.model == MODEL
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    results = [json.loads(each) for each in (await client.files.content(batch.output_file_id)).text.splitlines()]
    assert [each["custom_id"] for each in results] == ["id-0", "id-1", "id-2"]
    assert all(each["response"]["status_code"] == 200 and each["error"] is None for each in results)
    assert all(each["id"] == each["response"]["request_id"] for each in results)
    assert results[0]["response"]["body"]["usage"]["total_tokens"] == 7
    output = await client.files.retrieve(batch.output_file_id)
    assert output.purpose == "batch_output"
    # What a client may do with what is left.
    assert [each.id async for each in client.batches.list()] == [batch.id]
    assert {each.id async for each in client.files.list()} == {file.id, output.id}
    assert [each.id async for each in client.files.list(purpose="batch")] == [file.id]
    assert (await client.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)


async def test_failed_lines_are_in_the_error_file(service: Service) -> None:
    client = service.client()
    bad = lines(2, bad=True).replace(b'"id-', b'"bad-')
    batch = await ended(client, await submit(client, lines(1) + bad))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 2)
    errors = [json.loads(each) for each in (await client.files.content(batch.error_file_id)).text.splitlines()]
    assert [(each["custom_id"], each["response"]["status_code"], each["error"]["code"]) for each in errors] == [
        ("bad-0", 400, "400"), ("bad-1", 400, "400"),
    ]  # fmt: skip


async def test_a_file_with_a_bad_line_fails_and_nothing_runs(service: Service) -> None:
    client = service.client()
    batch = await ended(client, await submit(client, lines(2) + b"{\n" + lines(1)))
    assert batch.status == "failed"
    assert [(each.code, each.line) for each in batch.errors.data] == [
        ("invalid_json_line", 3), ("duplicate_custom_id", 4),
    ]  # fmt: skip
    assert (batch.request_counts.total, batch.failed_at is None) == (0, False)
    assert service.gateway.bodies == []


async def test_an_unknown_model_fails_the_batch(service: Service) -> None:
    client = service.client()
    batch = await ended(client, await submit(client, lines(2, model="other/name")))
    assert [(each.code, each.line, each.param) for each in batch.errors.data] == [("model_not_found", 1, "body.model")]
    assert '"other/name"' in batch.errors.data[0].message
    assert service.gateway.bodies == []


async def test_batches_are_listed_in_pages(service: Service) -> None:
    client = service.client()
    created = [await submit(client, lines(1)) for _ in range(5)]
    first = await client.batches.list(limit=2)
    assert first.has_more
    assert {each.id async for each in client.batches.list(limit=2)} == set(created)
    with pytest.raises(openai.BadRequestError, match="limit is '101': must be from 1 to 100"):
        await client.batches.list(limit=101)
    with pytest.raises(openai.BadRequestError, match="after is 'none': must be an id of this list"):
        await client.batches.list(after="none")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"endpoint": "/v1/other"}, "endpoint: "),
        ({"completion_window": "14m"}, "completion_window is '14m': must be minutes, hours or days"),
        ({"completion_window": "31d"}, "completion_window is '31d'"),
        ({"completion_window": "x"}, "completion_window is 'x'"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 3600}}, "output_expires_after: "),
        ({"metadata": {"a": "x" * 513}}, "metadata.a: "),
        ({"metadata": {str(each): "" for each in range(17)}}, "metadata: "),
        ({"input_file_id": 7}, "input_file_id: "),
    ],
)
async def test_a_bad_batch_is_refused_by_its_field(service: Service, change: dict[str, object], words: str) -> None:
    file = await service.client().files.create(file=b"x", purpose="batch")
    body = {"input_file_id": file.id, "endpoint": ENDPOINT, "completion_window": "24h"} | change
    async with httpx.AsyncClient(base_url=service.url) as client:
        answer = await client.post("/v1/batches", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(words)


async def test_bodies_that_are_no_batch_are_refused(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        for body, status in ((b"{", 400), (b"[]", 400), (b"[" * 9999, 400), (b" " * (2**16 + 1), 413)):
            answer = await client.post("/v1/batches", content=body)
            assert (answer.status_code, set(answer.json()["error"])) == (status, {"message", "type", "param", "code"})
        assert (await client.get("/v1/uploads")).status_code == 404
        assert (await client.put("/v1/batches")).status_code == 405


async def test_forms_that_are_no_upload_are_refused(service: Service, tmp_path: Path) -> None:
    file = {"file": ("a", b"x")}
    async with httpx.AsyncClient(base_url=service.url) as client:

        async def refused(**form: object) -> str:
            answer = await client.post("/v1/files", **form)  # type: ignore[arg-type]
            assert answer.status_code == 400, answer.text
            return str(answer.json()["error"]["message"])

        assert await refused(content=b"{}") == "Content-Type must be multipart/form-data with a boundary"
        assert await refused(files=file) == "purpose is '': must be 'batch'"
        assert await refused(files=file, data={"purpose": "vision"}) == "purpose is 'vision': must be 'batch'"
        assert await refused(files={"x": (None, "1")}) == "'x': the form may have file and purpose, each once"
        assert "purpose is longer" in await refused(files=file, data={"purpose": "x" * 999})
        assert await refused(files={"purpose": (None, "batch")}) == "file: the form must have one"
        twice = [("file", ("a", b"x")), ("file", ("b", b"y"))]
        assert await refused(files=twice) == "file: the form has more than one"
        whole = client.build_request("POST", "/v1/files", files=file, data={"purpose": "batch"})
        cut = whole.read()[:-8]
        form = {"Content-Type": whole.headers["Content-Type"]}
        assert await refused(content=cut, headers=form) == "the form ends before its last boundary"
        assert "cannot be read" in await refused(content=b"--none\r\n", headers=form)
    await until(_async(lambda: list((tmp_path / "data/files").iterdir())), lambda left: left == [])


async def test_an_upload_is_refused_while_it_is_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_form, "MAX_FILE_BYTES", 2**20)
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    head, body = await send_until_refused(service, "/v1/files", "multipart/form-data; boundary=b", form)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["message"] == f"file is longer than {2**20} bytes"
    await until(_async(lambda: list((tmp_path / "data/files").iterdir())), lambda left: left == [])


async def test_an_upload_as_large_as_the_limit_is_not_held_in_memory(service: Service) -> None:
    """The port would hold 128 MiB of bodies."""
    size = 160 * 2**20
    form = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    form += b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    async def pieces() -> AsyncIterator[bytes]:
        yield form
        for _ in range(size // 2**20):
            yield b"x" * 2**20
        yield b"\r\n--b--\r\n"

    async with httpx.AsyncClient(base_url=service.url) as client:
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = await client.post("/v1/files", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["bytes"]) == (200, size)


def _async(read):  # type: ignore[no-untyped-def]
    async def call():  # type: ignore[no-untyped-def]
        return read()

    return call


async def test_another_key_finds_nothing(tmp_path: Path, gateway: StubGateway) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    async with serving(tmp_path / "data", gateway, KeyFiles(tmp_path / "keys")) as service:
        one, two, other = map(service.client, ("one", "two", "three"))
        batch = await ended(one, await submit(one, lines(1)))
        for call in (
            lambda: two.batches.retrieve(batch.id), lambda: two.batches.cancel(batch.id),
            lambda: two.files.retrieve(batch.input_file_id), lambda: two.files.content(batch.output_file_id),
            lambda: two.files.delete(batch.output_file_id),
            lambda: two.batches.create(
                input_file_id=batch.input_file_id, endpoint=ENDPOINT, completion_window="24h"
            ),
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                await call()
        assert (await two.batches.list()).data == []
        with pytest.raises(openai.AuthenticationError):
            await other.batches.list()
        async with httpx.AsyncClient(base_url=service.url) as http:
            assert (await http.get("/health")).status_code == 200
            assert (await http.get("/v1/files")).status_code == 401


async def test_a_file_in_use_cannot_be_deleted(service: Service) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.client()
    batch = await client.batches.retrieve(await submit(client, lines(1)))
    with pytest.raises(openai.ConflictError, match=batch.id) as refused:
        await client.files.delete(batch.input_file_id)
    assert refused.value.response.headers["x-should-retry"] == "false"
    service.gateway.gate.set()
    await ended(client, batch.id)
    assert (await client.files.delete(batch.input_file_id)).deleted


def test_every_endpoint_of_a_batch_is_a_route_of_the_gateway() -> None:
    from paternoster_contract.http.routes import FORWARDED

    assert set(app_module.ENDPOINTS) <= set(FORWARDED)
