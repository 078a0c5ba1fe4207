"""Tools and reasoning over the wire, with the real ``openai`` client and its types."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import DEEPSEEK_R1, HARMONY, LLAMA3, MISTRAL, QWEN3
from tests.engine.server.tools_tokenizer import with_special

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Weather in Zürich and Rome?"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich \\"\\u00e9\\""}}\n</tool_call>'
CALL_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def _script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]


def _client(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=server.client, max_retries=0)


async def _both(server: Server, **body: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The plain answer and the stream's choices, validated by the client's types and found to say the same."""
    whole = await server.client.post("/v1/chat/completions", json=CHAT | body)
    assert whole.status_code == 200, whole.text
    ChatCompletion.model_validate(whole.json())
    streamed = await server.client.post(
        "/v1/chat/completions", json=CHAT | body | {"stream": True, "stream_options": {"include_usage": True}}
    )
    *frames, usage = [json.loads(event[6:]) for event in streamed.text.split("\n\n")[:-2]]
    for frame in (*frames, usage):
        ChatCompletionChunk.model_validate(frame)
    choices = [frame["choices"][0] for frame in frames]
    # The second found the first one's prompt in the cache.
    assert usage["usage"] | {"prompt_tokens_details": None} == whole.json()["usage"] | {"prompt_tokens_details": None}
    (choice,) = whole.json()["choices"]
    assert _joined(choices) == _without_ids(choice["message"])
    assert choices[-1]["finish_reason"] == choice["finish_reason"]
    assert all(other["finish_reason"] is None for other in choices[:-1])
    return whole.json(), choices


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"type": call["type"], "function": call["function"]} for call in message.get("tool_calls", [])]
    return message | ({"tool_calls": calls} if calls else {})


def _joined(choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A stream's deltas as a message, without the ids of calls."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    for choice in choices:
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    if "id" in piece:
                        assert piece["index"] == len(calls)
                        calls.append({"type": piece["type"], "function": dict(piece["function"])})
                    else:
                        assert piece["index"] == len(calls) - 1
                        calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
            elif name != "role" and value:
                message[name] = (message.get(name) or "") + value
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None and "reasoning" not in message:
        message["content"] = ""
    return message


@pytest.fixture
async def qwen(tokenizer: Tokenizer) -> AsyncIterator[Server]:
    async with scripted_server(tokenizer.with_template(QWEN3))(paced=True, **ROOM) as server:
        yield server


async def test_calls_of_an_answer(qwen: Server, tokenizer: Tokenizer) -> None:
    _script_answer(qwen, tokenizer, f"Let me see.\n{CALL}\n{CALL_NOW}")
    whole, choices = await _both(qwen, tools=TOOLS)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    first, second = choice["message"]["tool_calls"]
    assert first["id"].startswith("call_")
    assert first["id"] != second["id"]
    assert first["function"] == {"name": "weather", "arguments": '{"city": "Zürich \\"\\u00e9\\""}'}
    assert second["function"] == {"name": "now", "arguments": "{}"}
    pieces = [piece for each in choices for piece in each["delta"].get("tool_calls", [])]
    assert [piece["index"] for piece in pieces] == sorted(piece["index"] for piece in pieces)
    # Arguments come while they are written.
    assert sum("id" not in piece for piece in pieces) > 3
    # Without parallel calls, the first alone.
    whole, _ = await _both(qwen, tools=TOOLS, parallel_tool_calls=False)
    assert [call["function"]["name"] for call in whole["choices"][0]["message"]["tool_calls"]] == ["weather"]


async def test_without_tools_calls_are_text(qwen: Server, tokenizer: Tokenizer) -> None:
    _script_answer(qwen, tokenizer, CALL)
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS[1:]}):
        whole, _ = await _both(qwen, **fields)
        assert whole["choices"][0] | {"logprobs": None} == {
            "index": 0, "message": {"role": "assistant", "content": CALL}, "logprobs": None, "finish_reason": "stop",
        }  # fmt: skip
    shown = await qwen.client.post("/tokenize", json=CHAT | {"tools": TOOLS})
    hidden, _ = await _both(qwen, tools=TOOLS, tool_choice="none")
    assert hidden["usage"]["prompt_tokens"] < shown.json()["count"]


async def test_a_call_that_is_cut_off(qwen: Server, tokenizer: Tokenizer) -> None:
    _script_answer(qwen, tokenizer, CALL)
    whole, _ = await _both(qwen, tools=TOOLS, max_tokens=len(tokenizer.encode(CALL)) - 12)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert '{"city": "Zürich \\"\\u00e9\\""}'.startswith(call["function"]["arguments"])


async def test_each_choice_has_calls_of_its_own(qwen: Server, tokenizer: Tokenizer) -> None:
    _script_answer(qwen, tokenizer, CALL_NOW)
    answer = await _client(qwen).chat.completions.create(model="scripted", n=2, tools=TOOLS, **CHAT)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 2
    stream = await _client(qwen).chat.completions.create(model="scripted", n=2, tools=TOOLS, stream=True, **CHAT)
    begun = [
        (choice.index, call.index)
        async for chunk in stream
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
        if call.id
    ]
    assert sorted(begun) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_tool_loop_of_three_turns(qwen: Server, tokenizer: Tokenizer, streams: bool) -> None:
    """Two calls at once, then one, then the answer; each message goes back as the client's own object."""
    client, messages = _client(qwen), list(CHAT["messages"])
    answers = [f"<think>\nBoth.\n</think>\n\n{CALL}\n{CALL_NOW}", f"And now?\n{CALL_NOW}", "12 °C."]
    prompts = []
    for turn, text in enumerate(answers):
        _script_answer(qwen, tokenizer, text)
        if streams:
            async with client.chat.completions.stream(model="scripted", messages=messages, tools=TOOLS) as stream:
                async for _ in stream:
                    pass
                answer = await stream.get_final_completion()
        else:
            answer = await client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
        (choice,) = answer.choices
        assert choice.finish_reason == ("stop" if turn == 2 else "tool_calls")
        messages.append(choice.message.model_dump())
        for call in choice.message.tool_calls or []:
            assert call.type == "function"
            json.loads(call.function.arguments)
            result = f"result of {call.function.name}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        ids = (await qwen.client.post("/tokenize", json={"messages": messages})).json()["tokens"]
        prompts.append(tokenizer.decode(ids, skip_special_tokens=False))
    assert messages[-1]["content"] == "12 °C."
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (
        '<think>\nBoth.\n</think>\n\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich \\"é\\""}}'
        in prompts[0]
    )
    assert prompts[0].index("result of weather") < prompts[0].index("result of now")
    assert prompts[1].count("result of now") == 2


async def test_reasoning(qwen: Server, tokenizer: Tokenizer) -> None:
    _script_answer(qwen, tokenizer, "<think>\nHm, hm.\n</think>\n\nYes.")
    whole, _ = await _both(qwen)
    assert whole["choices"][0]["message"] == {
        "role": "assistant", "content": "Yes.", "reasoning_content": "Hm, hm.", "reasoning": "Hm, hm.",
    }  # fmt: skip
    count = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
    thought = len(tokenizer.encode("<think>\nHm, hm.\n</think>"))
    assert abs(count - thought) <= 3 < count
    assert whole["usage"]["completion_tokens"] > count
    hidden, _ = await _both(qwen, include_reasoning=False)
    assert hidden["choices"][0]["message"] == {"role": "assistant", "content": "Yes."}
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] == count
    cut, _ = await _both(qwen, max_tokens=count - 3)
    message = cut["choices"][0]["message"]
    assert (message["content"], cut["choices"][0]["finish_reason"]) == (None, "length")
    assert "Hm, hm.".startswith(message["reasoning"])


async def test_reasoning_that_the_template_begins(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer.with_template(DEEPSEEK_R1))(**ROOM) as server:
        _script_answer(server, tokenizer, "Hm.\n</think>\n\nYes.")
        whole, _ = await _both(server)
        assert whole["choices"][0]["message"]["reasoning"] == "Hm."
        assert whole["choices"][0]["message"]["content"] == "Yes."
        whole, _ = await _both(server, add_generation_prompt=False)
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hm.\n</think>\n\nYes."}


async def test_effort_and_variables(tokenizer: Tokenizer) -> None:
    """``reasoning_effort`` goes to templates that read it, or that have a switch for thinking."""

    async def tokens(server: Server, **fields: Any) -> int:
        answer = await server.client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 1} | fields)
        assert answer.status_code == 200, answer.text
        count: int = answer.json()["usage"]["prompt_tokens"]
        return count

    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        plain = await tokens(server)
        silent = await tokens(server, chat_template_kwargs={"enable_thinking": False})
        assert silent > plain == await tokens(server, reasoning_effort="high")
        assert await tokens(server, reasoning_effort="none") == silent
        template_variables = {"enable_thinking": False}
        assert await tokens(server, reasoning_effort="high", chat_template_kwargs=template_variables) == silent
    async with scripted_server(tokenizer.with_template("{{ reasoning_effort }}{{ messages[0].content }}"))(
        **ROOM
    ) as server:
        count = len(tokenizer.encode("low" + CHAT["messages"][0]["content"]))
        assert await tokens(server, reasoning_effort="low") == count
    async with scripted_server(tokenizer.with_template("{{ messages[0].content }}"))(**ROOM) as server:
        assert await tokens(server, reasoning_effort="none") == await tokens(server, reasoning_effort="max")


@pytest.mark.parametrize(
    ("path", "change", "name"),
    [
        ("/v1/chat/completions", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("/v1/responses", {"reasoning": {"effort": "max"}}, "reasoning.effort"),
        (
            "/v1/messages",
            {"output_config": {"effort": "max"}, "thinking": {"type": "adaptive"}},
            "output_config.effort",
        ),
        ("/v1/messages/count_tokens", {"output_config": {"effort": "high"}}, "output_config.effort"),
    ],
)
async def test_an_effort_without_effect_is_reported_as_ignored(
    tokenizer: Tokenizer, path: str, change: dict[str, Any], name: str
) -> None:
    """Claude Code sends one in every request, whatever the model is."""
    conversation = [{"role": "user", "content": "Hi"}]
    body: dict[str, Any] = {"input": conversation} if path == "/v1/responses" else {"messages": conversation}
    body |= {} if path.endswith("count_tokens") or "input" in body else {"max_tokens": 5}
    async with scripted_server(tokenizer)(**ROOM) as server:
        answer = await server.client.post(path, json=body | change | {"odd": 1})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-paternoster-ignored"] == ", ".join(sorted(["odd", name]))
    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        answer = await server.client.post(path, json=body | change)
        assert answer.status_code == 200, answer.text
        assert "x-paternoster-ignored" not in answer.headers


@pytest.mark.parametrize(
    ("template", "special", "answer_text", "message"),
    [
        (MISTRAL + "{{ tools }}", ["[TOOL_CALLS]", "[/INST]"],
         '[TOOL_CALLS] [{"name": "now", "arguments": {"a": 1}}]',
         {"content": None, "calls": [("now", '{"a": 1}')]}),
        (MISTRAL + "{{ tools }}", ["[TOOL_CALLS]", "[ARGS]"], 'Yes[TOOL_CALLS]now[ARGS]{"a": 1}',
         {"content": "Yes", "calls": [("now", '{"a": 1}')]}),
        (LLAMA3 + "<|python_tag|>", ["<|python_tag|>"], '<|python_tag|>{"name": "now", "parameters": {}}',
         {"content": None, "calls": [("now", "{}")]}),
        (HARMONY, ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"],
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
         '<|constrain|>json<|message|>{"a":1}<|call|>',
         {"content": None, "reasoning": "Hm.", "calls": [("now", '{"a":1}')]}),
    ],
)  # fmt: skip
async def test_marks_that_are_control_tokens(
    tokenizer: Tokenizer, template: str, special: list[str], answer_text: str, message: dict[str, Any]
) -> None:
    """They are not skipped, though others are."""
    tokenizer = with_special(tokenizer, *special, template=template)
    assert all(tokenizer.is_special(tokenizer.encode(token)[0]) for token in special)
    async with scripted_server(tokenizer)(**ROOM) as server:
        _script_answer(server, tokenizer, answer_text + "<|im_start|>")
        whole, _ = await _both(server, tools=TOOLS)
        (choice,) = whole["choices"]
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]]
        assert calls == message.pop("calls")
        assert choice["message"].items() >= message.items()
        assert choice["finish_reason"] == "tool_calls"
        if "[TOOL_CALLS]" in special:
            assert len(choice["message"]["tool_calls"][0]["id"]) == 9


@pytest.mark.parametrize(
    ("fields", "param", "part"),
    [
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "no tool 'x'",
        ),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice", '"required"'),
        ({"tools": TOOLS * 65}, "tools", "128"),
        ({"tools": TOOLS * 5000}, "tools", "128"),
        ({"tools": [{"type": "function", "function": {"name": 'a"'}}]}, "tools.0.function.name", "pattern"),
        ({"tools": [{"type": "function", "function": {"name": "a\n"}}]}, "tools.0.function.name", "pattern"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 129}}]}, "tools.0.function.name", "pattern"),
        ({"reasoning_effort": "most"}, "reasoning_effort", "'high'"),
    ],
)
async def test_what_is_refused(qwen: Server, fields: dict[str, Any], param: str, part: str) -> None:
    response = await qwen.client.post("/v1/chat/completions", json=CHAT | fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), response.text
    assert part in error["message"]
