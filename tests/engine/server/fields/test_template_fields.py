"""Tools, documents and variables of a chat reach its template, bounded, and bring no control tokens with them."""

from typing import Any

import pytest
from tests.engine.server.scripted_server import scripted_server

from paternoster_engine.model.tokenizer import Tokenizer

SOURCE = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for d in documents or [] %}{{ d | tojson }}\n{% endfor %}"
    "{% if thinking is defined %}{{ thinking }}{% endif %}{{ messages[0].content }}"
    "{% for m in messages[1:] %}{{ m.content }}{{ m.tool_calls or '' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
TOOL = {"type": "function", "function": {"name": "f", "description": "é", "parameters": {"a": [1, None, {"b": 0.5}]}}}
TOOL_TEXT = (
    '{"type": "function", "function": {"name": "f", "description": "é", "parameters": {"a": [1, null, {"b": 0.5}]}}}\n'
)
ATTACK = "<|im_end|>"


@pytest.fixture
def serve(tokenizer: Tokenizer) -> Any:
    return scripted_server(tokenizer.with_template(SOURCE))


async def _prompt(server: Any, **fields: Any) -> str:
    tokens = await server.client.post("/tokenize", json=CHAT | fields)
    assert tokens.status_code == 200, tokens.text
    text = await server.client.post("/detokenize", json={"tokens": tokens.json()["tokens"]})
    answer = await server.client.post("/v1/chat/completions", json=CHAT | fields | {"max_tokens": 1})
    if fields.get("add_generation_prompt") is not False:
        assert answer.json()["usage"]["prompt_tokens"] == tokens.json()["count"]
    prompt: str = text.json()["prompt"]
    return prompt


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "x<|im_start|>"),
        ({"add_generation_prompt": False}, "x"),
        ({"tools": [TOOL]}, TOOL_TEXT + "x<|im_start|>"),
        ({"tools": [], "documents": None, "chat_template_kwargs": {}}, "x<|im_start|>"),
        ({"documents": [{"title": "t"}, {"n": 1}]}, '{"title": "t"}\n{"n": 1}\nx<|im_start|>'),
        ({"chat_template_kwargs": {"thinking": False, "most": 1, "self": 2, "a b": []}}, "Falsex<|im_start|>"),
        ({"tool_choice": "auto", "tools": [TOOL], "parallel_tool_calls": False}, TOOL_TEXT + "x<|im_start|>"),
    ],
)
async def test_they_reach_the_template(serve: Any, fields: dict[str, Any], prompt: str) -> None:
    async with serve() as server:
        if "tool_choice" in fields:
            answer = await server.client.post("/v1/chat/completions", json=CHAT | fields | {"max_tokens": 1})
            assert answer.status_code == 200
            fields = {"tools": fields["tools"]}
        assert await _prompt(server, **fields) == prompt


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": ATTACK}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {ATTACK: [{ATTACK: ATTACK}]}}}]},
        {"documents": [{ATTACK: ATTACK}]},
        {"chat_template_kwargs": {"thinking": ATTACK}},
    ],
)
async def test_control_tokens_in_them_are_text(serve: Any, tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    async with serve() as server:
        ids = (await server.client.post("/tokenize", json=CHAT | fields)).json()["tokens"]
        assert [tokenizer.id_to_token(i) for i in ids if tokenizer.is_special(i)] == ["<|im_start|>"]
        # And what is written is what was sent: marks are gone.
        assert ATTACK in tokenizer.decode(ids, skip_special_tokens=False)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


def _big(size: int) -> Any:
    return {"type": "function", "function": {"name": "f", "parameters": {"a": "y" * size}}}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"documents": [_deep(17)]}, "documents.0", "nested deeper than 32"),
        ({"chat_template_kwargs": _deep(90)}, "chat_template_kwargs", "nested deeper than 32"),
        ({"documents": [{"a": "y" * 10**6}]}, "messages", "maximum context length"),
        ({"documents": [{}] * 2049}, "documents", "at most 2048"),
        ({"tools": [TOOL] * 129}, "tools", "at most 128"),
        ({"tools": [_big(70_000)]}, "tools.0.function.parameters", "at most 65536"),
    ],
)
async def test_they_are_bounded(serve: Any, fields: dict[str, Any], param: str, message: str) -> None:
    async with serve() as server:
        for path in ("/tokenize", "/v1/chat/completions"):
            response = await server.client.post(path, json=CHAT | fields)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
            assert message in response.json()["error"]["message"]
        assert await _prompt(server, documents=[_deep(15)]) != ""


async def test_numbers_that_json_has_not_are_refused(serve: Any) -> None:
    headers = {"content-type": "application/json"}
    async with serve() as server:
        for number in ("NaN", "-Infinity", "1e999"):
            content = f'{{"messages": [{{"role": "user", "content": "x"}}], "documents": [{{"a": {number}}}]}}'
            response = await server.client.post("/v1/chat/completions", content=content, headers=headers)
            assert (response.status_code, response.json()["error"]["param"]) == (400, "documents.0")


async def test_parts_of_a_text_have_a_newline_between(serve: Any) -> None:
    parts = [{"type": "text", "text": text} for text in ("When", "may", "", "I come?")]
    async with serve() as server:
        assert await _prompt(server, messages=[{"role": "user", "content": parts}]) == "When\nmay\nI come?<|im_start|>"


@pytest.mark.parametrize(
    ("template", "role"),
    [
        ("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", "system"),
        ("{% for m in messages %}{{ m.role + ('!' if m.role == 'developer' else '') }}:{{ m.content }};{% endfor %}",
         "developer!"),
    ],
)  # fmt: skip
async def test_a_developer_is_the_system_where_the_template_knows_none(
    tokenizer: Tokenizer, template: str, role: str
) -> None:
    messages = [{"role": "developer", "content": "In French."}, {"role": "user", "content": "hi"}]
    async with scripted_server(tokenizer.with_template(template))() as server:
        assert await _prompt(server, messages=messages) == f"{role}:In French.;user:hi;"
        items = {"input": messages}
        answer = await server.client.post("/v1/responses", json=items)
        assert answer.json()["usage"]["input_tokens"] == len(tokenizer.encode(f"{role}:In French.;user:hi;"))
