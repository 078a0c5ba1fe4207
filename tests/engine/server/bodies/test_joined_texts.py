"""Neighbouring messages become one: each text is copied a few times, however many there are."""

from typing import Any

import pytest

from paternoster_engine.server.messages import translate as messages
from paternoster_engine.server.messages.requests import MessagesRequest
from paternoster_engine.server.openai.messages import join_texts
from paternoster_engine.server.responses import conversation
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.translate import chat_of

TEXT, COUNT = "a" * 100, 1000
USER = {"role": "user", "content": TEXT}
REASONING = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": TEXT}]}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters of each text that is joined."""
    sizes: list[int] = []

    def join(texts: Any) -> str:
        joined = join_texts(texts)
        sizes.append(len(joined))
        return joined

    monkeypatch.setattr(messages, "join_texts", join)
    monkeypatch.setattr(conversation, "join_texts", join)
    return sizes


@pytest.mark.parametrize("role", ["user", "system"])
def test_of_messages(copied: list[int], role: str) -> None:
    several = [*([{"role": role, "content": TEXT}] * COUNT), USER]
    body = MessagesRequest.model_validate({"max_tokens": 1, "messages": several})
    chat = messages.chat_of(body).body["messages"]
    assert chat[0] == {"role": role, "content": "\n".join([TEXT] * (COUNT + (role == "user")))}
    assert sum(copied) <= 4 * len(TEXT) * COUNT


@pytest.mark.parametrize(
    ("item", "joined"),
    [
        ({"role": "assistant", "content": TEXT}, {"role": "assistant", "content": "\n".join([TEXT] * COUNT)}),
        ({"role": "system", "content": TEXT}, {"role": "system", "content": "\n\n".join([TEXT] * COUNT)}),
        (REASONING, {"role": "assistant", "content": "", "reasoning_content": "\n".join([TEXT] * COUNT)}),
    ],
)
def test_of_items(copied: list[int], item: dict[str, Any], joined: dict[str, Any]) -> None:
    body = ResponsesRequest.model_validate({"input": [*([item] * COUNT), USER]})
    assert chat_of(body).body["messages"] == [joined, USER]
    assert sum(copied) <= 4 * len(TEXT) * COUNT
