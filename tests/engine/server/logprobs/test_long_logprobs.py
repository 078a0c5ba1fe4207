"""The event loop goes on while answers with many log probabilities are made."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server import pieces
from paternoster_engine.server.generation import generation
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.openai import routes
from paternoster_engine.server.openai.logprobs import LogprobsWriter
from paternoster_engine.server.translation import respond

ROOM = {"max_model_len": 2048, "num_blocks": 1024, "max_batched_tokens": 2048}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1000, "ignore_eos": True}
PLACES = 32
"""Spelled in one turn, in place of more."""
TOP = 5


class Spelled:
    """Counts the tokens that are spelled between two turns of others."""

    def __init__(self) -> None:
        self.all = self.in_this_turn = self.most = 0

    def one(self) -> None:
        self.all += 1
        self.in_this_turn += 1
        self.most = max(self.most, self.in_this_turn)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        async def take_turns() -> None:
            while True:
                self.in_this_turn = 0
                await asyncio.sleep(0)

        other = asyncio.create_task(take_turns())
        try:
            yield
        finally:
            other.cancel()


@pytest.fixture
def spelled(monkeypatch: pytest.MonkeyPatch) -> Spelled:
    monkeypatch.setattr(pieces, "PIECE", PLACES)
    monkeypatch.setattr(generation, "PIECE", PLACES)
    spelled = Spelled()
    spell = LogprobsWriter._token_text

    def counting(writer: LogprobsWriter, token: int) -> str:
        spelled.one()
        return spell(writer, token)

    monkeypatch.setattr(LogprobsWriter, "_token_text", counting)
    return spelled


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", CHAT | {"logprobs": True, "top_logprobs": TOP}),
        ("chat/completions", CHAT | {"max_tokens": 1, "messages": [{"role": "user", "content": "a " * 900}],
                                     "prompt_logprobs": TOP}),
        ("completions", {"prompt": "a " * 900, "max_tokens": 1, "echo": True, "logprobs": TOP}),
        ("completions", {"prompt": ["a " * 300] * 3, "max_tokens": 1, "prompt_logprobs": TOP}),
        ("completions", {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "logprobs": TOP}),
        ("completions", {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "logprobs": TOP,
                         "use_beam_search": True, "n": 2}),
        ("responses", {"input": "a", "max_output_tokens": 900, "ignore_eos": True, "top_logprobs": TOP,
                       "include": ["message.output_text.logprobs"]}),
    ],
)  # fmt: skip
async def test_others_have_their_turn(
    serve: Any, spelled: Spelled, path: str, body: dict[str, Any], stream: bool
) -> None:
    if stream and ("prompt_logprobs" in body or "use_beam_search" in body):
        return
    async with serve("one two three four", **ROOM) as server, spelled.counted():
        response = await server.client.post(f"/v1/{path}", json=body | {"stream": stream})
        assert response.status_code == 200, response.text
    assert spelled.all > 890 * TOP
    # One turn may lie before the other task's, and the next one behind it.
    assert spelled.most <= 2 * PLACES * (TOP + 2)


async def test_a_slow_reader_gets_bounded_deltas(tokenizer: Tokenizer) -> None:
    request = Request(RequestSpec("a", [1], SamplingParams(max_tokens=1001), 0.0))
    decoder = SimpleNamespace(loop=_Loop(), tokenizer=tokenizer, unanswered=None)
    generation = Generation(decoder, [request])  # type: ignore[arg-type]
    for place in range(1001):
        generation._outputs.put_nowait(StepOutput(request, 28, FinishReason.LENGTH if place == 1000 else None))
    texts = [delta.text async for _, delta in generation.stream_deltas()]
    one = len(tokenizer.decode([28]))
    assert [len(text) // one for text in texts] == [128] * 7 + [105]


class _Loop:
    def abort(self, *_: Any) -> None:
        """Nothing runs."""


async def test_the_bytes_are_those_of_the_models(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    async def both(answer: Any, *, exclude_unset: bool = False) -> bytes:
        written = await pieces.json_in_pieces(answer, exclude_unset=exclude_unset)
        assert written == answer.model_dump_json(exclude_unset=exclude_unset).encode()
        compared.append(len(written))
        return written

    monkeypatch.setattr(routes, "json_in_pieces", both)
    monkeypatch.setattr(respond, "json_in_pieces", both)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", CHAT | {"logprobs": True, "top_logprobs": 20, "n": 2, "return_token_ids": True}),
        ("chat/completions", CHAT | {"max_tokens": 3, "prompt_logprobs": 3}),
        ("completions", {"prompt": ["é🪁 " * 300, "b"], "max_tokens": 9, "echo": True, "logprobs": 3, "n": 2}),
        ("completions", {"prompt": ["é🪁 " * 300, [7]], "max_tokens": 9, "prompt_logprobs": 3,
                         "return_token_ids": True}),
        ("responses", {"input": "a", "max_output_tokens": 600, "ignore_eos": True, "top_logprobs": 3,
                       "metadata": {"a": "b"}, "include": ["message.output_text.logprobs"]}),
    ]  # fmt: skip
    async with serve('one "two" \\ 🪁 four', **ROOM) as server:
        for path, body in calls:
            response = await server.client.post(f"/v1/{path}", json=body)
            assert response.status_code == 200, response.text
            assert json.loads(response.text)
    assert len(compared) == len(calls)
    assert max(compared) > 100_000
