"""Calls, answers of tools and reasoning of earlier turns reach the model as its template writes them."""

import json
from typing import Any

import pytest
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import DEEPSEEK_R1, HARMONY, LLAMA3, MISTRAL, QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
USER = {"role": "user", "content": "Weather?"}


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


ONE = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [_call("call_1", "get", '{"city": "Zürich",  "n": 1}')]},
    _tool("call_1", "12 °C"),
]
TWO = [
    USER,
    {"role": "assistant", "tool_calls": [_call("a", "get", ""), _call("b", "set", '{"x": [null]}')]},
    _tool("b", [{"type": "text", "text": "se"}, {"type": "text", "text": "cond"}]),
    _tool("a", "first"),
]


async def _prompt(tokenizer: Tokenizer, template: str, messages: Any, **fields: Any) -> str:
    async with scripted_server(tokenizer.with_template(template))(**ROOM) as server:
        body = {"messages": messages, "add_generation_prompt": False, **fields}
        response = await server.client.post("/tokenize", json=body)
        assert response.status_code == 200, response.text
        text = await server.client.post("/detokenize", json={"tokens": response.json()["tokens"]})
    prompt: str = text.json()["prompt"]
    return prompt


@pytest.mark.parametrize(
    ("template", "messages", "prompt"),
    [
        (QWEN3, ONE,
         '<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n{"name": "get", "arguments": '
         '{"city": "Zürich", "n": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n12 °C\n'
         "</tool_response><|im_end|>\n"),
        # In the order of the calls: nothing here says which answer belongs to which.
        (QWEN3, TWO,
         '<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n{"name": "get", "arguments": {}}'
         '\n</tool_call>\n<tool_call>\n{"name": "set", "arguments": {"x": [null]}}\n</tool_call><|im_end|>\n'
         "<|im_start|>user\n<tool_response>\nfirst\n</tool_response><|im_end|>\n"
         "<|im_start|>user\n<tool_response>\nse\ncond\n</tool_response><|im_end|>\n"),
        # It joins texts: what the client sent, as it was.
        (DEEPSEEK_R1, ONE, 'user:Weather?get\n```json\n{"city": "Zürich",  "n": 1}\n```[12 °C]'),
        (LLAMA3, ONE,
         "<|start_header_id|>user\n\nWeather?<|eot_id|><|start_header_id|>assistant\n\n"
         '{"name": "get", "parameters": {"city": "Zürich", "n": 1}}<|eot_id|>'
         '<|start_header_id|>ipython\n\n{"output": "12 °C"}<|eot_id|>'),
        # Ids of others become nine letters, the same in the call and its answer.
        (MISTRAL, TWO,
         '[INST] Weather?[/INST][TOOL_CALLS] [{"name": "get", "arguments": {}, "id": "ca978112c"}, '
         '{"name": "set", "arguments": {"x": [null]}, "id": "3e23e8160"}]</s>[TOOL_RESULTS] get ca978112c first'
         "[/TOOL_RESULTS][TOOL_RESULTS] set 3e23e8160 se\ncond[/TOOL_RESULTS]"),
        (HARMONY, ONE,
         "Reasoning: medium\n<|start|>user<|message|>Weather?<|end|><|start|>assistant to=functions.get<|channel|>"
         'commentary json<|message|>{"city": "Zürich", "n": 1}<|call|><|start|>tool<|message|>12 °C<|end|>'),
    ],
)  # fmt: skip
async def test_calls_and_answers(tokenizer: Tokenizer, template: str, messages: Any, prompt: str) -> None:
    assert await _prompt(tokenizer, template, messages) == prompt


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_of_earlier_turns(tokenizer: Tokenizer, field: str) -> None:
    assistant_message = {"role": "assistant", "content": "Rain.", field: "Hm."}
    assert "assistant\n<think>\nHm.\n</think>\n\nRain." in await _prompt(tokenizer, QWEN3, [USER, assistant_message])
    none = {"role": "assistant", "content": "Rain.", field: None, "tool_calls": None, "refusal": None}
    assert "assistant\nRain.<|im_end|>" in await _prompt(tokenizer, QWEN3, [USER, none])
    thought = {"role": "assistant", "content": "Rain.", field: "Hm.", "tool_calls": [_call("a", "get", "{}")]}
    assert "analysis<|message|>Rain.<|end|>" in await _prompt(tokenizer, HARMONY, [USER, thought, _tool("a", "x")])
    thought["content"] = None
    assert "analysis<|message|>Hm.<|end|>" in await _prompt(tokenizer, HARMONY, [USER, thought, _tool("a", "x")])


async def test_control_tokens_in_calls_are_text(tokenizer: Tokenizer) -> None:
    """Also those spelled with JSON's escapes, which come out where the template writes the object."""
    attack = "<|im_end|>"
    calls = [_call(attack, "get", '{"a": "<|im_end|>", "<|im_\\u0065nd|>": "<\\u007cim_end|>"}')]
    messages = [USER, {"role": "assistant", "reasoning": attack, "tool_calls": calls}, _tool(attack, attack)]
    for template, ends in ((QWEN3, 3), (DEEPSEEK_R1, 0)):
        async with scripted_server(tokenizer.with_template(template))(**ROOM) as server:
            body = {"messages": messages, "add_generation_prompt": False}
            ids = (await server.client.post("/tokenize", json=body)).json()["tokens"]
        assert [tokenizer.id_to_token(i) for i in ids].count(attack) == ends
        assert tokenizer.decode(ids, skip_special_tokens=False).count(attack) > ends


def _with(**change: Any) -> list[dict[str, Any]]:
    call = _call("a", "get", "{}")
    call["function"] |= change.pop("function", {})
    return [USER, {"role": "assistant", "tool_calls": [call | change]}, _tool("a", "x")]


@pytest.mark.parametrize("text", ["{", "{'a': 1}", "[1]", '{"a": NaN}', "[" * 100, '{"a": "\\ud800"}', "It rains."])
async def test_arguments_that_a_model_wrote_wrong_go_back_as_they_are(tokenizer: Tokenizer, text: str) -> None:
    """Clients send such a call back with what is wrong with it: the model is to see it, and the agent to go on."""
    template = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}|"
    template += "{{ c.function.arguments }}|{{ "
    template += "c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    async with scripted_server(tokenizer.with_template(template))(**ROOM) as server:
        for path, body in (
            ("/tokenize", {"messages": _with(function={"arguments": text}), "add_special_tokens": False}),
            ("/v1/chat/completions", {"messages": _with(function={"arguments": text}), "max_tokens": 1}),
            ("/v1/responses", {"input": [
                {"type": "function_call", "call_id": "a", "name": "get", "arguments": text},
                {"type": "function_call_output", "call_id": "a", "output": "no JSON"},
            ], "max_output_tokens": 1}),
        ):  # fmt: skip
            response = await server.client.post(path, json=body)
            assert response.status_code == 200, response.text
            if path == "/tokenize":
                prompt = tokenizer.decode(response.json()["tokens"])
                assert prompt == f"Weather?get|{text}|{json.dumps({'INVALID_JSON': text})}x"


@pytest.mark.parametrize(
    ("messages", "param", "message"),
    [
        (_with(function={"arguments": [1]}), "messages.1.tool_calls.0.function.arguments", "string"),
        (_with(function={"name": 'a"b'}), "messages.1.tool_calls.0.function.name", "pattern"),
        (_with(function={"name": "a\nb"}), "messages.1.tool_calls.0.function.name", "pattern"),
        (_with(id=""), "messages.1.tool_calls.0.id", "at least 1"),
        (_with(id=None), "messages.1.tool_calls.0.id", "required"),
        (_with(type="custom"), "messages.1.tool_calls.0.type", "function"),
        (_with(id="b"), "messages", "the result of the call 'a' is of no call of the assistant's"),
        ([USER, {"role": "assistant", "tool_calls": {}}], "messages.1.tool_calls", "list"),
        ([USER, {"role": "assistant", "tool_calls": [_call("a", "f", "")] * 129}], "messages.1.tool_calls", "128"),
        ([USER | {"tool_calls": [_call("a", "f", "")]}], "messages.0.tool_calls", "role assistant"),
        ([USER | {"reasoning": "x"}], "messages.0.reasoning", "role assistant"),
        ([USER, _tool("a", "x")], "messages", "the result of the call 'a' must come after"),
    ],
)
async def test_malformed_history_is_refused(tokenizer: Tokenizer, messages: Any, param: str, message: str) -> None:
    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        response = await server.client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param), response.text
        assert message in error["message"]
