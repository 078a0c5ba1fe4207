"""``paternoster batch submit``, ``list``, ``watch``, ``results`` and ``cancel`` against a service, and hostile ones."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.batch.conftest import Service, StubGateway, ended, lines, serving, submit, until

from paternoster_batch import batch_client, client_actions
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.cli.command import main
from paternoster_contract.labels import API_KEY_ENV


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_actions, "POLL_SECONDS", 0.05)
    monkeypatch.delenv(API_KEY_ENV, raising=False)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Awaitable[tuple[int, str, str]]]:
    """Run ``paternoster batch``: its exit code, and what it printed to standard output and standard error."""

    async def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(main, ["batch", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


Command = Callable[..., Awaitable[tuple[int, str, str]]]


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_file_from_its_submission_to_its_results(service: Service, command: Command, tmp_path: Path) -> None:
    file, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    bad = lines(1, bad=True).replace(b"id-0", b"bad")
    file.write_bytes(lines(3) + bad)
    code, out, err = await command("submit", str(file), "--url", service.url, "--window", "2h")
    assert (code, err) == (0, "")
    batch = out.strip()
    code, out, err = await command("watch", batch, "--url", service.url)
    assert code == 1, "a line failed"
    assert out == f"{batch} completed: 3 of 4 lines answered, 1 failed, 21 tokens\n"
    assert "21 tokens" in err
    code, out, err = await command("results", batch, "--url", service.url)
    assert (code, err) == (0, "")
    results = [json.loads(line) for line in out.splitlines()]
    assert [each["custom_id"] for each in results] == ["id-0", "id-1", "id-2", "bad"]
    assert [each["response"]["status_code"] for each in results] == [200, 200, 200, 400]
    assert await command("results", batch, "--url", service.url, "-o", str(output)) == (0, "", "")
    assert output.read_text() == out
    assert names_below(tmp_path) == {"data", "in.jsonl", "out.jsonl"}
    code, out, _ = await command("list", "--url", service.url)
    head, row = out.splitlines()
    assert head.split() == [
        "ID", "STATUS", "ANSWERED", "FAILED", "LINES", "TOKENS", "MODEL", "ENDPOINT", "WINDOW", "CREATED",
    ]  # fmt: skip
    assert row.split()[:9] == [batch, "completed", "3", "1", "4", "21", "tiny", "/v1/chat/completions", "2h"]
    code, out, err = await command("cancel", batch, "--url", service.url)
    assert (code, out) == (2, "")
    assert err.startswith("paternoster batch cancel: the batch is completed: ")


async def test_a_batch_whose_lines_are_all_answered_ends_with_0(service: Service, command: Command) -> None:
    batch = await submit(service.client(), lines(2))
    assert (await command("watch", batch, "--url", service.url))[0] == 0


async def test_bad_lines_are_named_before_anything_is_uploaded(
    service: Service, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + lines(2) + b"{\n\r\n" + lines(1) + lines(1, stream=True).replace(b"id-0", b"s"))
    code, out, err = await command("submit", str(file), "--url", service.url)
    assert (code, out) == (1, "")
    assert [re.match(r"(\d+):.*\[(\w+)\]", line.removeprefix(f"{file}:")).groups() for line in err.splitlines()] == [  # type: ignore[union-attr]
        ("3", "invalid_json_line"), ("5", "duplicate_custom_id"), ("6", "stream_not_supported"),
    ]  # fmt: skip
    assert (await service.client().files.list()).data == []


async def test_a_model_that_is_not_served_is_named_with_its_line(
    service: Service, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n" + lines(2, model="other"))
    code, out, err = await command("submit", str(file), "--url", service.url)
    assert code == 1
    assert err == f'{file}:2: body.model is "other": no model is served under this name [model_not_found]\n'
    for action in ("watch", "results"):
        code, _, err = await command(action, out.strip(), "--url", service.url)
        assert (code, err.splitlines()[-1].partition(": ")[0]) == (1, f"{out.strip()}:2")


async def test_a_file_beyond_the_limit_is_not_read(
    service: Service, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_actions, "MAX_FILE_BYTES", 100)
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(2))
    code, _, err = await command("submit", str(file), "--url", service.url)
    assert (code, err) == (1, f"{file}: has {len(lines(2))} bytes: a batch has at most 100\n")


async def test_a_batch_that_cannot_be_validated_yet_is_created(
    tmp_path: Path, gateway: StubGateway, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_actions, "VALIDATION_SECONDS", 0.2)
    gateway.url = "http://127.0.0.1:1"
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(1))
    async with serving(tmp_path / "data", gateway) as service:
        code, out, err = await command("submit", str(file), "--url", service.url)
        assert (code, err) == (0, "")
        assert (await service.client().batches.retrieve(out.strip())).status == "validating"


async def test_results_so_far_are_those_behind_a_number(service: Service, command: Command) -> None:
    service.gateway.gate = asyncio.Event()
    client = service.client()
    batch = await submit(client, lines(8))

    async def count_sent() -> int:
        return len(service.gateway.bodies)

    await until(count_sent, lambda count: count == 4)
    assert await command("results", batch, "--url", service.url) == (
        1, "", f"{batch} is in_progress: --after 0 writes the results so far\n",
    )  # fmt: skip
    service.gateway.gate.set()
    service.gateway.gate = asyncio.Event()
    await until(lambda: client.batches.retrieve(batch), lambda seen: seen.request_counts.completed == 4)
    code, out, err = await command("results", batch, "--url", service.url, "--after", "1")
    assert (code, len(out.splitlines()), err) == (0, 3, "3 results; the next are behind --after 4\n")
    assert await command("cancel", batch, "--url", service.url) == (0, f"{batch} cancelling\n", "")
    await ended(client, batch)
    code, out, err = await command("watch", batch, "--url", service.url)
    assert (code, out) == (1, f"{batch} cancelled: 4 of 8 lines answered, 4 failed, 28 tokens\n")


async def test_the_key_of_the_environment_is_sent(
    tmp_path: Path, gateway: StubGateway, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    async with serving(tmp_path / "data", gateway, KeyFiles(tmp_path / "keys")) as service:
        batch = await submit(service.client("one"), lines(1))
        code, _, err = await command("list", "--url", service.url)
        assert (code, err) == (2, "paternoster batch list: the API key is not valid (status 401)\n")
        monkeypatch.setenv(API_KEY_ENV, "two")
        for action in ("watch", "results", "cancel"):
            code, _, err = await command(action, batch, "--url", service.url)
            assert (code, err) == (2, f"paternoster batch {action}: No such batch: '{batch}' (status 404)\n")
        assert len((await command("list", "--url", service.url))[1].splitlines()) == 1
        monkeypatch.setenv(API_KEY_ENV, "one")
        assert len((await command("list", "--url", service.url))[1].splitlines()) == 2


async def test_more_batches_than_a_page_has_are_listed(
    service: Service, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_client, "BATCHES_AT_ONCE", 2)
    batches = [await submit(service.client(), lines(1)) for _ in range(5)]
    listed = [line.split()[0] for line in (await command("list", "--url", service.url))[1].splitlines()[1:]]
    assert sorted(listed) == sorted(batches)
    assert len((await command("list", "--url", service.url, "--limit", "3"))[1].splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--url", "host:1"], "list: --url is 'host:1': must be a URL such as http://127.0.0.1:8090"),
        (["list", "--url", "http://127.0.0.1:1"], "list: http://127.0.0.1:1: "),
        (["list", "--url", "http://a", "--limit", "0"], "list: --limit is 0: must be at least 1"),
        (["results", "x", "--url", "http://a", "--after", "-1"], "results: --after is -1: must be at least 0"),
        (
            ["submit", "none", "--url", "http://a", "--endpoint", "/x"],
            "submit: --endpoint is '/x': must be one of /v1/",
        ),
        (["submit", "none", "--url", "http://a", "--window", "1h30m"], "submit: --window is '1h30m': must be minutes"),
        (["submit", "/none", "--url", "http://a"], "submit: [Errno 2] No such file or directory: '/none'"),
        (["submit", "/", "--url", "http://a"], "submit: [Errno 21] Is a directory: '/'"),
    ],
)
async def test_flags_that_cannot_be_are_named(words: list[str], message: str, command: Command) -> None:
    code, out, err = await command(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"paternoster batch {message}")


@pytest.mark.parametrize("words", [[], ["--gateway", "http://a"], ["--data", "data"], ["watch", "x"], ["other"]])
def test_what_is_missing_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["batch", *words])
    assert ended.value.code == 2
    assert re.search("needs --gateway and --data|required: --url|invalid choice", capsys.readouterr().err)


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """URL of a server that is no batch service."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def batch_document(**changes: object) -> dict[str, object]:
    return {
        "id": "batch_1", "status": "completed", "endpoint": "/v1/chat/completions", "created_at": 1,
        "completion_window": "24h", "output_file_id": "file-1",
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (lambda: web.Response(text="<html>"), "is none of a batch service: Expecting value"),
        (lambda: web.Response(text="[" * 1000), "is none of a batch service: it is nested deeper"),
        (lambda: web.Response(text=" " * 2000), "is none of a batch service: it is longer than 1000 bytes"),
        (lambda: web.json_response({"id": "x"}), "is none of a batch service: status: Field required"),
        (lambda: web.json_response(batch_document(status="\x1b[2J")), "is none of a batch service: status: Input"),
        (lambda: web.Response(status=302, headers={"Location": "http://a"}), "refused without a message (status 302)"),
        (lambda: web.json_response({"error": "no"}, status=500), "refused without a message (status 500)"),
        (lambda: web.json_response({"error": {"message": "\x1b[2J"}}, status=400), r"cancel: \x1b[2J (status 400)"),
    ],
)
async def test_answers_of_other_servers_are_refused(
    response: Callable[[], web.Response], message: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_client, "MAX_ANSWER_BYTES", 1000)

    async def answer(_: web.Request) -> web.Response:
        return response()

    async with answering(answer) as url:
        code, out, err = await command("cancel", "x", "--url", url)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


async def test_what_a_terminal_could_not_show_is_quoted(command: Command) -> None:
    async def answer(request: web.Request) -> web.Response:
        is_content = "content" in request.path
        return web.Response(body=b"\x1b]52;c;x\x07\n") if is_content else web.json_response(batch_document())

    async with answering(answer) as url:
        assert await command("results", "x", "--url", url) == (0, "\\x1b]52;c;x\\x07\n", "")


async def test_a_line_without_an_end_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_actions, "MAX_RESULT_BYTES", 1000)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 5000) if "content" in request.path else web.json_response(batch_document())

    async with answering(answer) as url:
        code, out, err = await command("results", "x", "--url", url)
    assert (code, out) == (2, "")
    assert "a line of the results has more than 1000 bytes" in err


async def test_a_file_of_results_that_is_not_whole_is_not_there(command: Command, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "content" not in request.path:
            return web.json_response(batch_document())
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{}\n")
        assert request.transport is not None
        request.transport.close()
        return response

    async with answering(answer) as url:
        code, _, err = await command("results", "x", "--url", url, "-o", str(tmp_path / "out"))
    assert (code, names_below(tmp_path)) == (2, set())
    assert err.startswith("paternoster batch results: http://127.0.0.1:")


async def test_a_service_that_starts_anew_is_waited_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [200, 503, 502, 200, 200]

    async def answer(_: web.Request) -> web.Response:
        status = answers.pop(0)
        state = "completed" if not answers else "in_progress"
        return web.json_response(batch_document(status=state), status=status)

    async with answering(answer) as url:
        assert (await command("watch", "x", "--url", url))[:2] == (
            0, "batch_1 completed: 0 of 0 lines answered, 0 failed, 0 tokens\n",
        )  # fmt: skip
        answers += [200, 503, 503, 503]
        monkeypatch.setattr(client_actions, "LOST_SECONDS", 0.0)
        code, _, err = await command("watch", "x", "--url", url)
    assert code == 2
    assert err.splitlines()[-1] == "paternoster batch watch: refused without a message (status 503)"
