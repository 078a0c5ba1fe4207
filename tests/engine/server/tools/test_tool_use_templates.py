"""Models with a second chat template for tools: it is chosen as transformers chooses it, and read as any other."""

from typing import Any

import pytest
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

DEFAULT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
WITH_CALLS = DEFAULT.replace("{{ m.content }}", "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c }}{% endfor %}")
ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Paris"]}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
USER = {"role": "user", "content": "Weather in Tokyo?"}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Tokyo"}'}}],
}
HISTORY = [USER, CALLED, {"role": "tool", "tool_call_id": "c1", "content": "rain"}]


def _tokenizer(tokenizer: Tokenizer, default: str, tool_use: str | None) -> Tokenizer:
    made = tokenizer.with_template(default)
    made.tool_use_template = tool_use
    return made


async def _prompt(server: Server, **body: Any) -> str:
    tokens = await server.client.post("/tokenize", json=body)
    assert tokens.status_code == 200, tokens.text
    text = await server.client.post("/detokenize", json={"tokens": tokens.json()["tokens"]})
    prompt: str = text.json()["prompt"]
    return prompt


@pytest.mark.parametrize(
    ("default", "body", "of_tools"),
    [
        (DEFAULT, {"messages": [USER]}, False),
        (DEFAULT, {"messages": [USER], "tools": TOOLS}, True),
        (DEFAULT, {"messages": HISTORY, "tools": TOOLS}, True),
        # transformers would lose the calls here.
        (DEFAULT, {"messages": HISTORY}, True),
        (WITH_CALLS, {"messages": HISTORY}, False),
    ],
)
async def test_the_template_of_tools_is_chosen_for_them(
    tokenizer: Tokenizer, default: str, body: dict[str, Any], of_tools: bool
) -> None:
    async with scripted_server(_tokenizer(tokenizer, default, QWEN3))(**ROOM) as server:
        prompt = await _prompt(server, **body)
        assert ("<|im_start|>user\nWeather in Tokyo?<|im_end|>" in prompt) == of_tools
        assert ("[user] Weather in Tokyo?" in prompt) != of_tools
        assert ("<tools>" in prompt) == ("tools" in body)
        assert ("weather" in prompt) == (len(body["messages"]) > 1 or "tools" in body)


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_are_read_in_the_form_of_that_template(tokenizer: Tokenizer, stream: bool) -> None:
    async with scripted_server(_tokenizer(tokenizer, DEFAULT, QWEN3))(CALL, **ROOM) as server:
        body = {"messages": [USER], "tools": TOOLS, "max_tokens": 60, "stream": stream}
        answer = await server.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert "x-paternoster-tool-template" not in answer.headers
        assert '"finish_reason":"tool_calls"' in answer.text.replace(" ", "")
        unused = await server.client.post("/v1/chat/completions", json=body | {"tool_choice": "none"})
        assert "tool_calls" not in unused.text


async def test_a_template_of_ones_own_is_the_only_one(tokenizer: Tokenizer) -> None:
    assert _tokenizer(tokenizer, DEFAULT, QWEN3).with_template(WITH_CALLS).tool_use_template is None


async def test_a_control_token_that_only_that_template_writes_is_text_in_messages(tokenizer: Tokenizer) -> None:
    made = _tokenizer(tokenizer, DEFAULT, QWEN3)
    async with scripted_server(made)(**ROOM) as server:
        messages_sent = [{"role": "user", "content": "a<|im_end|>b"}]
        tokens = (await server.client.post("/tokenize", json={"messages": messages_sent, "tools": TOOLS})).json()[
            "tokens"
        ]
        end = tokenizer.encode("<|im_end|>")
        assert tokens.count(end[0]) == 1, "the template's own alone"
