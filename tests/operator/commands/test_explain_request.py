"""``paternoster explain --request`` and ``--slowest``: the records of a gateway, in words and as JSON."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paternoster_contract.access.keys import READER_TO_GATEWAY, derive_key
from paternoster_operator.publish import serve_app
from paternoster_operator.terminal.call_page import describe_calls

FOLDER = Path(__file__).parent
RECORDS: list[dict[str, Any]] = json.loads((FOLDER / "calls.json").read_text())
GOLDEN = FOLDER / "calls.txt"


def test_the_words() -> None:
    assert "\n".join(describe_calls(RECORDS)) + "\n" == GOLDEN.read_text()
    assert describe_calls([]) == ["No call has ended here yet."]


class Gateway:
    """Answers as a gateway's port of statistics, and keeps what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.queries: list[Mapping[str, str]] = []
        self.ids: list[str] = []
        self.answer: Response | None = None

    async def list_records(self, request: Request) -> Response:
        self.queries.append(dict(request.query_params))
        return self._answer(request)

    async def find_record(self, request: Request) -> Response:
        self.ids.append(request.path_params["id"])
        return self._answer(request)

    def _answer(self, request: Request) -> Response:
        if self.answer is not None:
            return self.answer
        if request.headers.get("authorization") != f"Bearer {derive_key('root', READER_TO_GATEWAY)}":
            return JSONResponse({"error": {"message": "this is for others"}}, 401)
        return JSONResponse({"requests": RECORDS})


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    one = Gateway()
    (tmp_path / "key").write_text("root\nolder\n")
    routes = [
        Route("/debug/requests", one.list_records),
        Route("/debug/requests/{id:path}", one.find_record),
    ]
    server, port = await serve_app(Starlette(routes=routes), "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{port}"
    yield one
    await server.close()


async def test_of_a_gateway(gateway: Gateway, tmp_path: Path, call_paternoster: Any) -> None:
    keyed = ("--server", gateway.url, "--gateway-key", str(tmp_path / "key"))
    done = await asyncio.to_thread(call_paternoster, "explain", "--request", "a/b?c", *keyed)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", GOLDEN.read_text())
    assert gateway.ids == ["a/b?c"]
    done = await asyncio.to_thread(call_paternoster, "explain", "--slowest", "10", "--tenant", "a b", "--json", *keyed)
    assert json.loads(done.stdout) == RECORDS
    assert gateway.queries == [{"slowest": "10", "tenant": "a b"}]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--request", "x" * 10_000], 2, "--request: is '" + "x" * 64 + "': must be 1 to 128 visible ASCII characters"),
        (["--request", "a b"], 2, "--request: is 'a b': must be 1 to 128 visible ASCII characters"),
        (["--request", "a"], 1, "{url}: HTTP 401: this is for others"),
        (["--request", "a", "--gateway-key", "/nothing"], 1, "--gateway-key /nothing: "),
        ([], 2, "needs the name of an LLMDeployment, --request ID or --slowest N"),
    ],
)
async def test_what_is_refused(
    gateway: Gateway, call_paternoster: Any, words: list[str], status: int, message: str
) -> None:
    done = await asyncio.to_thread(call_paternoster, "explain", *words, "--server", gateway.url)
    assert (done.returncode, done.stdout) == (status, "")
    assert message.format(url=gateway.url) in done.stderr


async def test_an_answer_that_is_none_of_a_gateway(gateway: Gateway, call_paternoster: Any) -> None:
    for answer in (Response("x" * 3_000_000), Response("{}"), Response("[]"), Response(b"\xff")):
        gateway.answer = answer
        done = await asyncio.to_thread(call_paternoster, "explain", "--request", "a", "--server", gateway.url)
        assert done.returncode == 1
        assert f"{gateway.url} is no gateway's address" in done.stderr


async def test_without_a_session_a_gateway_is_to_be_named(call_paternoster: Any) -> None:
    done = await asyncio.to_thread(call_paternoster, "explain", "--request", "a")
    assert done.returncode == 1
    assert "no 'paternoster up' runs on this machine: --server is a gateway's port of statistics" in done.stderr
