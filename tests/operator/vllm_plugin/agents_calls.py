"""Streamed calls as agents send them, in each of vLLM's APIs, and what makes an answer to one whole and valid."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import jsonschema_rs
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

CHATS, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
SCHEMA: dict[str, Any] = {
    "type": "object", "additionalProperties": False, "required": ["city", "days", "note"],
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "London", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "note": {"type": "string", "minLength": 20, "maxLength": 60},
    },
}  # fmt: skip
FUNCTION = {"name": "book_trip", "description": "Book a trip.", "parameters": SCHEMA}
QUESTION = [{"role": "user", "content": "Plan a trip to a city, with a note on what to see there."}]
FLAGS = [
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--tool-strict-level", "parameter",
    "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}',
]  # fmt: skip
"""With which vLLM parses calls of tools, and a small model does not fill an answer with spaces."""


@dataclass(frozen=True, slots=True)
class AgentsCall:
    """One call, and what checks the events of its stream; raises ``AssertionError``."""

    path: str
    body: dict[str, Any]
    check_events: Callable[[list[dict[str, Any]]], None]

    def check(self, stream: bytes) -> None:
        """That ``stream`` is a whole and valid answer, for the official client of its API, too."""
        self.check_events(read_events(stream))
        read_by_client(self.path, stream)


def read_by_client(path: str, stream: bytes) -> None:
    """Gather ``stream`` as the official client of an API does, to the end; raises what the client raises."""
    answer = httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=stream)
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)) as http:
        if path == MESSAGES:
            theirs = anthropic.Anthropic(api_key="x", http_client=http, max_retries=0)
            with theirs.messages.stream(model="model", max_tokens=1, messages=[]) as message:
                assert message.get_final_message().stop_reason
            return
        client = openai.OpenAI(api_key="x", base_url="http://engine/v1", http_client=http, max_retries=0)
        if path == CHATS:
            chat = ChatCompletionStreamState()
            for chunk in client.chat.completions.create(model="model", messages=[], stream=True):
                chat.handle_chunk(chunk)
            assert all(choice.finish_reason for choice in chat.current_completion_snapshot.choices)
        elif path == RESPONSES:
            with client.responses.stream(model="model", input="") as response:
                assert response.get_final_response().status == "completed"
        else:
            chunks = list(client.completions.create(model="model", prompt="", stream=True))
            assert any(choice.finish_reason for chunk in chunks for choice in chunk.choices)


def read_events(stream: bytes) -> list[dict[str, Any]]:
    """The objects of a stream's events."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def check_arguments(text: str) -> None:
    """That ``text`` is valid by :data:`SCHEMA`."""
    faults = list(jsonschema_rs.Draft202012Validator(SCHEMA).iter_errors(json.loads(text)))
    assert not faults, f"{faults} in {text!r}"


def read_choices(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The parts of each choice of a chat or completion, whose frames have one id and one time."""
    assert not any("error" in event for event in events)
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    choices: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        for choice in event["choices"]:
            choices.setdefault(choice["index"], []).append(choice)
    return choices


def check_schema(events: list[dict[str, Any]]) -> None:
    (parts,) = read_choices(events).values()
    check_arguments("".join(part["delta"].get("content") or "" for part in parts))
    assert parts[-1]["finish_reason"] == "stop"


def check_called(events: list[dict[str, Any]]) -> None:
    """One call of the function, with one id."""
    (parts,) = read_choices(events).values()
    calls = [call for part in parts for call in part["delta"].get("tool_calls") or ()]
    assert {call["index"] for call in calls} == {0}
    assert len([call["id"] for call in calls if call.get("id")]) == 1
    assert "".join(call["function"].get("name") or "" for call in calls) == FUNCTION["name"]
    check_arguments("".join(call["function"].get("arguments") or "" for call in calls))
    assert parts[-1]["finish_reason"] in ("stop", "tool_calls")


def check_text(choices: int, tokens: int, alternatives: int = 0) -> Callable[[list[dict[str, Any]]], None]:
    """``tokens`` of each choice; with ``alternatives`` as many log probabilities of each token at least."""

    def check(events: list[dict[str, Any]]) -> None:
        found = read_choices(events)
        assert sorted(found) == list(range(choices))
        assert [parts[-1]["finish_reason"] for parts in found.values()] == ["length"] * choices
        assert next(event["usage"]["completion_tokens"] for event in events if event.get("usage")) == choices * tokens
        for parts in found.values():
            assert "".join(read_text(part) for part in parts)
            if alternatives:
                check_logprobs([part["logprobs"] for part in parts if part.get("logprobs")], tokens, alternatives)

    return check


def read_text(choice: dict[str, Any]) -> str:
    text: str = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
    return text


def check_logprobs(parts: Iterable[dict[str, Any]], tokens: int, alternatives: int) -> None:
    likely: list[int] = []
    for part in parts:
        if "content" in part:
            likely += [len(each["top_logprobs"]) for each in part["content"] or ()]
        else:
            likely += map(len, part["top_logprobs"])
    assert len(likely) == tokens
    assert all(alternatives <= count <= alternatives + 1 for count in likely)


def read_response(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of a response whose events are numbered, and whose deltas are those of its items."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
    response = events[-1]["response"]
    assert (response["id"], response["created_at"]) == (
        events[0]["response"]["id"],
        events[0]["response"]["created_at"],
    )
    items: list[dict[str, Any]] = response["output"]
    ids = {event["item_id"] for event in events if "item_id" in event}
    assert ids <= {item["id"] for item in items}
    return items


def check_response(events: list[dict[str, Any]]) -> None:
    (item,) = read_response(events)
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == item["content"][0]["text"]
    check_arguments(text)


def check_response_called(events: list[dict[str, Any]]) -> None:
    (item,) = [item for item in read_response(events) if item["type"] == "function_call"]
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == item["arguments"]
    assert item["name"] == FUNCTION["name"]
    check_arguments(item["arguments"])


def check_message(events: list[dict[str, Any]]) -> None:
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    blocks = [event for event in events if event["type"] == "content_block_start"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert len(blocks) == len([event for event in events if event["type"] == "content_block_stop"])
    tools = [block["content_block"] for block in blocks if block["content_block"]["type"] == "tool_use"]
    if tools:
        assert [tool["name"] for tool in tools] == [FUNCTION["name"]]
        check_arguments("".join(delta.get("partial_json") or "" for delta in deltas))
    else:
        assert "".join(delta.get("text") or "" for delta in deltas)


def _chat(check: Callable[[list[dict[str, Any]]], None], **fields: Any) -> AgentsCall:
    body = {"messages": QUESTION, "stream": True, "temperature": 0, "max_tokens": 200, **fields}
    return AgentsCall(CHATS, body, check)


TOOLS = [{"type": "function", "function": FUNCTION}]
FORCED = {"type": "function", "function": {"name": FUNCTION["name"]}}
COUNTED = {"stream_options": {"include_usage": True}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
CALLS = {
    "schema": _chat(check_schema, response_format=FORMAT),
    "tool of the model's choice": _chat(check_text(1, 40), tools=TOOLS, max_tokens=40, ignore_eos=True, **COUNTED),
    "required tool": _chat(check_called, tools=TOOLS, tool_choice="required"),
    "named tool": _chat(check_called, tools=TOOLS, tool_choice=FORCED),
    "log probabilities": _chat(
        check_text(1, 40, 3), logprobs=True, top_logprobs=3, max_tokens=40, ignore_eos=True, **COUNTED
    ),
    "two choices": _chat(
        check_text(2, 40), n=2, temperature=0.9, seed=1, max_tokens=40, ignore_eos=True, **COUNTED
    ),
    "completion": AgentsCall(
        COMPLETIONS,
        {
            "prompt": "Paris is", "stream": True, "temperature": 0.9, "max_tokens": 40, "ignore_eos": True, "n": 2,
            "logprobs": 2, **COUNTED,
        },
        check_text(2, 40, 2),
    ),
    "response": AgentsCall(
        RESPONSES,
        {
            "input": QUESTION[0]["content"], "stream": True, "temperature": 0, "max_output_tokens": 200,
            "text": {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA}},
        },
        check_response,
    ),
    "response with a tool": AgentsCall(
        RESPONSES,
        {
            "input": QUESTION[0]["content"], "stream": True, "temperature": 0, "max_output_tokens": 200,
            "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required",
        },
        check_response_called,
    ),
    "message": AgentsCall(
        MESSAGES,
        {"messages": QUESTION, "stream": True, "temperature": 0, "max_tokens": 40}, check_message,
    ),
    "message with a tool": AgentsCall(
        MESSAGES,
        {
            "messages": QUESTION, "stream": True, "temperature": 0, "max_tokens": 200,
            "tools": [{"name": FUNCTION["name"], "description": "Book a trip.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
        },
        check_message,
    ),
}  # fmt: skip
"""Calls by what an agent asks for."""
