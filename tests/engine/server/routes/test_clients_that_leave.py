"""What is done for a request before its answer begins ends when its client leaves, over real connections."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from tests.engine.server.leaving import leaves, listening, until
from tests.engine.server.scripted_server import WAIT

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.server.generation.grammar_work import GrammarWork

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
"""Bodies of all routes that read one."""


async def test_grammars_that_nobody_waits_for_are_not_compiled(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    gate, compile_ = threading.Event(), GrammarWork._compile

    def gated(work: GrammarWork, source: GrammarSource) -> Any:
        compiled.append(source.text)
        assert gate.wait(WAIT)
        return compile_(work, source)

    monkeypatch.setattr(GrammarWork, "_compile", gated)
    async with serve("one") as server, listening(server.state) as url, httpx.AsyncClient(base_url=url) as client:
        stays = asyncio.create_task(client.post("/v1/completions", json={"prompt": "Hi", "guided_regex": "one"}))
        await until(lambda: bool(compiled))
        grammars = server.state.served.answers.grammars
        for path, body in BODIES.items():
            grammar_fields = {"structured_outputs": {"regex": path}}
            await leaves(url, path, body | grammar_fields, lambda: grammars.waiting == 2)
            await until(lambda: grammars.waiting == 1)
        gate.set()
        assert (await stays).status_code == 200
        assert compiled == ["one"]


async def test_texts_that_nobody_waits_for_are_not_tokenized(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    gate, encoding = threading.Event(), Tokenizer.encode_text

    def gated(tokenizer: Tokenizer, text: str, *rest: Any) -> Any:
        read.append(text)
        assert gate.wait(WAIT)
        return encoding(tokenizer, text, *rest)

    async with serve("one") as server, listening(server.state) as url, httpx.AsyncClient(base_url=url) as client:
        monkeypatch.setattr(Tokenizer, "encode_text", gated)
        stays = asyncio.create_task(client.post("/v1/completions", json={"prompt": "stays", "max_tokens": 1}))
        await until(lambda: bool(read))
        lane = server.state.served.prompts.work._short
        alone = lane.held_bytes
        for path, body in TEXTS.items():
            await leaves(url, path, body, lambda: lane.held_bytes > alone)
            await until(lambda: lane.held_bytes == alone)
        gate.set()
        assert (await stays).status_code == 200
        assert read == ["stays"]
