"""What the event loop does for a long answer: in proportion to its length."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation import output_text
from paternoster_engine.server.parsers.events import CallBegin, Event, join_events

ROOM = {"max_model_len": 1024, "num_blocks": 512}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "ignore_eos": True}


class Copied:
    """Counts the characters of events that are joined."""

    def __init__(self) -> None:
        self.characters = 0

    def joined(self, events: Iterable[Event]) -> list[Event]:
        given = list(events)
        self.characters += sum(len(event.text) for event in given if not isinstance(event, CallBegin))
        return join_events(given)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Copied:
    copied = Copied()
    monkeypatch.setattr(output_text, "join_events", copied.joined)
    return copied


@pytest.mark.parametrize("beams", [{}, {"use_beam_search": True, "n": 2}])
async def test_a_whole_answer_is_put_together_once(serve: Any, copied: Copied, beams: dict[str, Any]) -> None:
    async with serve("one two three four", **ROOM) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | beams)
        assert response.status_code == 200, response.text
        num_characters = sum(len(choice["message"]["content"]) for choice in response.json()["choices"])
        assert num_characters > 1000
        assert 0 < copied.characters <= 2 * num_characters


@pytest.mark.parametrize("more", [{}, {"logprobs": 1}, {"stream": True}, {"use_beam_search": True}, {"max_tokens": 0}])
async def test_a_prompt_is_spelled_once_for_all_choices_that_begin_with_it(
    serve: Any, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    spelled, push = Counter[int](), IncrementalDetokenizer.add_token

    def counting(self: IncrementalDetokenizer, token: int) -> str:
        spelled[token] += 1
        return push(self, token)

    monkeypatch.setattr(IncrementalDetokenizer, "add_token", counting)
    rare = tokenizer.encode(" paternoster")[0]
    async with serve("one two three four", **ROOM) as server:
        body = {"prompt": [[rare] * 300, [rare, 28]], "n": 2, "max_tokens": 4, "echo": True}
        response = await server.client.post("/v1/completions", json=body | more)
        assert response.status_code == 200, response.text
        if "stream" not in more:
            texts = [choice["text"] for choice in response.json()["choices"]]
            for text, prompt in zip(texts, [body["prompt"][i] for i in (0, 0, 1, 1)], strict=True):
                assert text.startswith(tokenizer.decode(prompt))
        assert spelled[rare] == 301


async def test_steps_that_come_together_are_put_together_once(serve: Any, copied: Copied) -> None:
    """The reader of this stream is slow."""
    async with serve("one two three four", **ROOM) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        assert response.status_code == 200, response.text
        assert copied.characters <= 2 * len(response.text)
