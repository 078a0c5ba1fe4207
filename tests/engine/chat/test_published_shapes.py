"""Every text of a conversation is in the prompt that a published template makes of it, or it is refused."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.engine.chat.published_shapes import SHAPES

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.openai.chat_prompts import encode_chat
from paternoster_engine.server.openai.requests import ChatCompletionRequest

TOOLS = [{"type": "function", "function": {"name": "toolname", "description": "d", "parameters": {"type": "object"}}}]


def _m(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def _calls(*names: str) -> list[dict[str, Any]]:
    return [
        {"id": f"id{name}", "type": "function", "function": {"name": name, "arguments": f'{{"k": "of{name}"}}'}}
        for name in names
    ]


def _parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


QUESTION, ANSWER, AGAIN = _m("user", "ask"), _m("assistant", "say"), _m("user", "again")
SYSTEM, DEVELOPER = _m("system", "instruct"), _m("developer", "develop")
CALL = _m("assistant", None, tool_calls=_calls("first"))
TALKING_CALL = _m("assistant", "looking", tool_calls=_calls("first"))
TWO_CALLS = _m("assistant", "", tool_calls=_calls("first", "second"))
RESULT, SECOND = _m("tool", "result", tool_call_id="idfirst"), _m("tool", _parts("x", "y"), tool_call_id="idsecond")
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [QUESTION],
    "parts": [_m("system", _parts("one", "two")), _m("user", _parts("three", "four"))],
    "turns": [QUESTION, ANSWER, AGAIN],
    "system": [SYSTEM, QUESTION, ANSWER, AGAIN],
    "developer": [DEVELOPER, QUESTION],
    "system and developer": [SYSTEM, DEVELOPER, QUESTION],
    "late system": [QUESTION, ANSWER, SYSTEM, AGAIN],
    "last system": [QUESTION, SYSTEM],
    "two of the user": [QUESTION, AGAIN],
    "system and two of the user": [SYSTEM, QUESTION, AGAIN],
    "assistant first": [ANSWER, QUESTION],
    "empty answer": [QUESTION, _m("assistant", ""), AGAIN],
    "thought": [QUESTION, _m("assistant", "say", reasoning_content="hm"), AGAIN],
    "call": [QUESTION, CALL, RESULT],
    "system and call": [SYSTEM, QUESTION, CALL, RESULT],
    "call and answer": [QUESTION, CALL, RESULT, ANSWER, AGAIN],
    "talking call": [SYSTEM, QUESTION, TALKING_CALL, RESULT],
    "talking call and answer": [QUESTION, TALKING_CALL, RESULT, ANSWER, AGAIN],
    "two calls": [QUESTION, TWO_CALLS, SECOND, RESULT],
}
FORMS = [(name, tools) for name in CONVERSATIONS for tools in (False, True)]
ALTERNATING = {("assistant first", False), ("assistant first", True)}
"""What templates refuse in which user and assistant take turns, and the user begins."""
REFUSED: Mapping[str, set[tuple[str, bool]]] = dict.fromkeys(
    ("gemma-2", "gemma-3", "llama-2", "mistral-7b-v0.3", "mistral-small-3"), ALTERNATING
)
"""Conversations, without and with tools, of which no form is shown, by template; all others are served."""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in ("role", "type", "id", "tool_call_id", "reasoning_content"):
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value:
        yield from re.findall("[a-z]{2,}", value)


@pytest.fixture(scope="module", params=sorted(SHAPES))
def shape(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Iterator[tuple[str, PromptEncoder]]:
    scheduler = Scheduler(SchedulerConfig(max_model_len=8192, max_batched_tokens=8192, num_blocks=1024))
    own = tokenizer.with_template(SHAPES[request.param])
    encoder = PromptEncoder(own, scheduler, EngineArgs(model="m"))
    yield request.param, encoder
    encoder.close()


async def _prompt(encoder: PromptEncoder, messages: list[dict[str, Any]], *, tools: bool) -> str:
    body = ChatCompletionRequest.model_validate({"messages": messages, **({"tools": TOOLS} if tools else {})})
    encoding, _ = await encode_chat(encoder, "", body.messages, body)
    return encoder.tokenizer.decode(encoding.ids, skip_special_tokens=False)


async def test_every_text_is_in_the_prompt_or_the_conversation_is_refused(shape: tuple[str, PromptEncoder]) -> None:
    name, encoder = shape
    refused = set()
    for conversation, tools in FORMS:
        messages = CONVERSATIONS[conversation]
        try:
            prompt = await _prompt(encoder, messages, tools=tools)
        except (InvalidValue, ChatTemplateError):
            refused.add((conversation, tools))
            continue
        lost = [text for text in _texts(messages) if text not in prompt]
        assert not lost, (conversation, tools, prompt)
        if tools and conversation not in ("call", "two calls"):
            assert "toolname" in prompt, (conversation, prompt)
        assert "'type'" not in prompt, (conversation, tools, prompt)
    assert refused == REFUSED.get(name, set())
