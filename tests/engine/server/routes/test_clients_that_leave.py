"""What is done for a request before its answer begins ends when its client leaves, over real connections."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from scripted_server import WAIT, Server

from paternoster_contract.http.limits import HttpLimits
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.server.app import create_app
from paternoster_engine.server.generation.grammar_work import GrammarWork
from paternoster_http.server import LimitedServer

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "leaves"}], "max_tokens": 1}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "leaves", "max_tokens": 1},
    "/v1/responses": {"input": "leaves", "max_output_tokens": 1},
    "/v1/messages": CHAT,
}
TEXTS = BODIES | {
    "/tokenize": {"prompt": "leaves"},
    "/v1/messages/count_tokens": {"messages": CHAT["messages"]},
}
"""Of all that is read."""


@asynccontextmanager
async def _listening(server: Server) -> AsyncIterator[str]:
    """The server's URL, on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    http = LimitedServer(create_app(server.state), HttpLimits(), lifespan="off", timeout_graceful_shutdown=1)
    serving = asyncio.create_task(http.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        http.should_exit = True
        await serving


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0.01)


async def _leaves(url: str, path: str, body: dict[str, Any], arrived: Callable[[], bool]) -> None:
    """A client that closes its connection once its request has ``arrived``."""
    async with httpx.AsyncClient(base_url=url) as client:
        asked = asyncio.create_task(client.post(path, json=body))
        await _until(arrived)
        asked.cancel()
        await asyncio.wait([asked])


async def test_grammars_that_nobody_waits_for_are_not_compiled(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    gate, compile_ = threading.Event(), GrammarWork._compile

    def gated(work: GrammarWork, source: GrammarSource) -> Any:
        compiled.append(source.text)
        assert gate.wait(WAIT)
        return compile_(work, source)

    monkeypatch.setattr(GrammarWork, "_compile", gated)
    async with serve("one") as server, _listening(server) as url, httpx.AsyncClient(base_url=url) as client:
        stays = asyncio.create_task(client.post("/v1/completions", json={"prompt": "Hi", "guided_regex": "one"}))
        await _until(lambda: bool(compiled))
        grammars = server.state.served.grammars
        for path, body in BODIES.items():
            said = {"structured_outputs": {"regex": path}}
            await _leaves(url, path, body | said, lambda: grammars.waiting == 2)
            await _until(lambda: grammars.waiting == 1)
        gate.set()
        assert (await stays).status_code == 200
        assert compiled == ["one"]


async def test_texts_that_nobody_waits_for_are_not_tokenized(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    gate, encoding = threading.Event(), Tokenizer.encoding

    def gated(tokenizer: Tokenizer, text: str, *rest: Any) -> Any:
        read.append(text)
        assert gate.wait(WAIT)
        return encoding(tokenizer, text, *rest)

    async with serve("one") as server, _listening(server) as url, httpx.AsyncClient(base_url=url) as client:
        monkeypatch.setattr(Tokenizer, "encoding", gated)
        stays = asyncio.create_task(client.post("/v1/completions", json={"prompt": "stays", "max_tokens": 1}))
        await _until(lambda: bool(read))
        lane = server.state.served.text_work._short
        alone = lane._taken
        for path, body in TEXTS.items():
            await _leaves(url, path, body, lambda: lane._taken > alone)
            await _until(lambda: lane._taken == alone)
        gate.set()
        assert (await stays).status_code == 200
        assert read == ["stays"]
