"""What a chat template leaves out of messages is named, or refused, also where it refuses their skeleton."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.engine.server.scripted_server import Server, scripted_server

from paternoster_engine.chat import renderer
from paternoster_engine.model.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
IGNORED = "x-paternoster-ignored"
NAMELESS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
NAMED = "{% for m in messages %}{{ m.name or m.role }}: {{ m.content }}\n{% endfor %}"
OF_USERS = "{% for m in messages %}{% if m.role == 'user' %}{{ m.name }} {% endif %}{{ m.content }}\n{% endfor %}"
ANSWERS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content.split('</think>')[1].strip() }}"
    "{% else %}{{ %s }}{% endif %};{% endfor %}"
)
"""Refuses every skeleton with an answer of the assistant's: no marker has a thought's end."""
THOUGHT = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "hm</think>say"}]


def _answers(of_others: str) -> str:
    return ANSWERS.replace("%s", of_others)


@asynccontextmanager
async def _served(tokenizer: Tokenizer, template: str) -> AsyncIterator[Server]:
    async with scripted_server(tokenizer.with_template(template))("one", max_model_len=512) as server:
        yield server


async def _prompt(server: Server, messages: list[dict[str, Any]]) -> str:
    tokens = (await server.client.post("/tokenize", json={"messages": messages})).json()["tokens"]
    return server.state.served.prompts.tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("template", "names", "is_reported"),
    [
        (NAMELESS, {"user": "ann"}, True),
        (NAMELESS, {}, False),
        (NAMED, {"user": "ann", "assistant": "bot"}, False),
        (OF_USERS, {"user": "ann"}, False),
        (OF_USERS, {"user": "ann", "assistant": "bot"}, True),
        (_answers("m.content"), {"user": "ann"}, True),
        (_answers("m.name ~ m.content"), {"user": "ann"}, False),
        (_answers("m.name ~ m.content"), {"user": "ann", "assistant": "bot"}, True),
    ],
)
async def test_names_that_a_template_drops_are_told(
    tokenizer: Tokenizer, template: str, names: dict[str, str], is_reported: bool, stream: bool
) -> None:
    conversation = [*THOUGHT, {"role": "user", "content": "again"}]
    messages = [m | ({"name": names[m["role"]]} if m["role"] in names else {}) for m in conversation]
    async with _served(tokenizer, template) as server:
        answer = await server.client.post(CHAT, json={"messages": messages, "stream": stream})
        assert answer.status_code == 200, answer.text
        assert answer.headers.get(IGNORED) == ("messages[].name" if is_reported else None)
        counted = await server.client.post("/tokenize", json={"messages": messages})
        assert counted.headers.get(IGNORED) == ("messages[].name" if is_reported else None)


async def test_a_results_name_is_its_functions(tokenizer: Tokenizer) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "found"},
    ]
    calls = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
    async with _served(tokenizer, f"{{% for m in messages %}}{{{{ m.content }}}}{calls}\n{{% endfor %}}") as server:
        answer = await server.client.post(CHAT, json={"messages": messages})
        assert (answer.status_code, answer.headers.get(IGNORED)) == (200, None)


async def test_texts_are_looked_for_where_the_skeleton_is_refused(tokenizer: Tokenizer) -> None:
    async with _served(tokenizer, _answers("m.content")) as server:
        assert await _prompt(server, THOUGHT) == "ask;say;"
        answer = await server.client.post(CHAT, json={"messages": THOUGHT})
        assert (answer.status_code, answer.headers.get(IGNORED)) == (200, None), answer.text


async def test_texts_that_are_spelled_as_json_are_found(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": 'say "ä"\nand more'}, THOUGHT[1]]
    async with _served(tokenizer, _answers("m.content | tojson")) as server:
        content_as_json = json.dumps(messages[0]["content"], ensure_ascii=False)
        assert await _prompt(server, messages) == f"{content_as_json};say;"


@pytest.mark.parametrize("others", ["''", "m.role", "m.content[:2]"])
async def test_a_lost_text_is_refused_where_the_skeleton_is_refused(tokenizer: Tokenizer, others: str) -> None:
    async with _served(tokenizer, _answers(others)) as server:
        for path in (CHAT, "/tokenize"):
            answer = await server.client.post(path, json={"messages": THOUGHT})
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "messages"), answer.text
            assert "leaves out the text" in error["message"]


async def test_a_conversation_that_is_refused_itself_tells_the_templates_reason(tokenizer: Tokenizer) -> None:
    refusing = "{% for m in messages %}{% if 'no' in m.content or m.content.startswith('qz') %}"
    refusing += "{{ raise_exception('not this one') }}{% endif %}{{ m.content }}{% endfor %}"
    async with _served(tokenizer, refusing) as server:
        refused = await server.client.post(CHAT, json={"messages": [{"role": "user", "content": "no"}]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")
        assert "not this one" in refused.json()["error"]["message"]
        served = await server.client.post(CHAT, json={"messages": [{"role": "user", "content": "yes"}]})
        assert served.status_code == 200, served.text


async def test_shapes_are_kept_up_to_a_bound(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "MAX_FITS", 3)
    turns = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}] * 5
    async with _served(tokenizer, NAMELESS) as server:
        fits = server.state.served.prompts.chat_template.renderer._fits
        for count in (1, 3, 5, 7, 9, 1):
            assert (await server.client.post(CHAT, json={"messages": turns[:count]})).status_code == 200
            assert len(fits) <= 3
        assert len(fits) == 3
