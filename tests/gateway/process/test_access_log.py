"""The access log: one line for each answer, whatever a client sends, and nothing in it that is secret."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, serving_table, stats, until

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.process.access_log import LONGEST

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
LONGEST_LINE = 6 * 2 * LONGEST + 1500
"""Characters; in ASCII a character of a client's may take six."""
PATH = "/v1/chat/completions"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
async def logged(table: Path, lines: list[str]) -> AsyncIterator[Door]:
    async with serving_table(table, access_log=lines.append) as url:
        yield Door(url, table)


async def published(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine, **fields: Any) -> None:
    door.publish(*engines, **fields)
    await until(lambda: stats(client, door), lambda models: "m" in models)


async def line(lines: list[str], number: int = 0) -> dict[str, Any]:
    """The line of that number; it is written when the answer has left."""
    await until(lambda: asyncio.sleep(0, len(lines)), lambda many: many > number)
    found: dict[str, Any] = json.loads(lines[number])
    return found


async def test_a_line_has_the_fields_of_a_request_and_its_answer(
    client: aiohttp.ClientSession, logged: Door, start: Start, lines: list[str]
) -> None:
    engine = await start("a", answer)
    who = Identity(tenant="floor-7")
    await published(
        client, logged, engine, key_digests=[digest_key("secret-key")], identities={digest_key("secret-key"): who}
    )
    headers = {"Authorization": "Bearer secret-key", "X-Request-Id": "mine", "User-Agent": "lift/1", "Cookie": "c=1"}
    body = {"model": "m", "messages": [{"role": "user", "content": "secret-prompt"}]}
    async with client.post(f"{logged.url}{PATH}?token=secret-query", json=body, headers=headers) as response:
        size = len(await response.read())
    fields = await line(lines)
    assert {name: fields[name] for name in fields if name not in ("start_time", "duration", "response_duration",
                                                              "downstream_remote_address")} == {
        "method": "POST", "path": PATH, "protocol": "HTTP/1.1", "response_code": 200, "complete": True,
        "bytes_received": len(json.dumps(body)), "bytes_sent": size, "user_agent": "lift/1", "request_id": "mine",
        "model": "m", "tenant": "floor-7", "upstream_host": engine.url, "upstream_request_attempt_count": 1,
        "error_event_code": None,
    }  # fmt: skip
    assert fields["start_time"].endswith("Z")
    assert 0 <= fields["response_duration"] <= fields["duration"]
    assert fields["downstream_remote_address"].startswith("127.0.0.1:")
    assert "secret" not in lines[0]
    assert "c=1" not in lines[0]


async def test_a_line_counts_attempts_and_has_the_status_of_an_error(
    client: aiohttp.ClientSession, logged: Door, start: Start, lines: list[str]
) -> None:
    async def full(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=503, headers={"Retry-After": "1"})

    engines = [await start(name, full) for name in "ab"]
    await published(client, logged, *engines)
    for model in ("m", "\n{injected}"):
        await client.post(logged.url + PATH, json={"model": model})
    refused, unknown = await line(lines, 0), await line(lines, 1)
    assert (refused["response_code"], refused["upstream_request_attempt_count"]) == (503, 2)
    assert (unknown["response_code"], unknown["model"], unknown["upstream_host"]) == (404, "", "")


@pytest.mark.parametrize(
    ("path", "agent"),
    [
        ("/v1/%C3%BC/%E2%80%AE" + "x" * 3000, "\x1b[31m" + "y" * 3000),
        ("/v1/none%22,%22response_code%22:200", 'quote" \\ {"a": 1}'),
        ("/v1/\u2028/%F0%9F%9B%97" * 40, "\t".join("z" * 9)),
    ],
)
async def test_control_characters_of_a_client_begin_no_line_of_the_log(
    client: aiohttp.ClientSession, logged: Door, lines: list[str], path: str, agent: str
) -> None:
    host, port = logged.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    status = int((await reader.read()).split()[1])
    writer.close()
    if status == 400:  # refused before it was a request
        assert lines == []
        return
    fields = await line(lines)
    assert fields["response_code"] == status == 404
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert lines[0].isascii()
    assert len(lines[0]) < LONGEST_LINE


async def test_a_line_is_not_complete_if_the_client_leaves_or_the_stream_breaks(
    client: aiohttp.ClientSession, logged: Door, start: Start, lines: list[str]
) -> None:
    async def endless(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await asyncio.Event().wait()
        return response

    await published(client, logged, await start("a", endless))
    response = await client.post(logged.url + PATH, json={"model": "m"})
    assert await response.content.readany() == b"data: 1\n\n"
    response.close()
    fields = await line(lines)
    assert (fields["response_code"], fields["complete"], fields["bytes_sent"]) == (200, False, 9)


async def test_probes_and_scrapes_are_not_logged(client: aiohttp.ClientSession, logged: Door, lines: list[str]) -> None:
    for path in (*PROBES, *NUMBERS, "/v1/models"):
        (await client.get(logged.url + path)).close()
    assert (await line(lines))["path"] == "/v1/models"
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("words", "written"), [([], False), (["--access-log=off"], False), (["--access-log=json"], True)]
)
def test_the_access_log_is_off_by_default(table: Path, words: list[str], written: bool) -> None:
    command = [Path(sys.executable).with_name("paternoster"), "gateway", f"--routes={table}", "--port=0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        code = f"import urllib.request as r; r.urlopen({url + '/v1/models'!r}).read()"
        while subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
            continue
        process.terminate()
        rest = process.stdout.read().splitlines()
        assert [json.loads(each)["path"] for each in rest] == (["/v1/models"] if written else [])
    finally:
        process.kill()
        process.wait()
