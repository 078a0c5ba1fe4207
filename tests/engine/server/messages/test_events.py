"""Whatever a model writes, its message and its stream are as the official client's types have them, and agree."""

import json
from itertools import count
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.engine.server.answers import ANSWER, REASON, calls, content, reasoning

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.generation.generation import Usage
from paternoster_engine.server.messages.events import MessageAnswer
from paternoster_engine.server.messages.requests import MessagesRequest
from paternoster_engine.server.messages.translate import chat_of, prompt_of
from paternoster_engine.server.openai.choice_events import ChoiceEvents
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Calls, Content, Event, Reasoning
from paternoster_engine.server.translation.answer import AnswerEnd

EVENTS: TypeAdapter[Any] = TypeAdapter(list[RawMessageStreamEvent])


def answer(*, thinking: bool = True) -> MessageAnswer:
    ids = count()
    return MessageAnswer("m", lambda: f"call_{next(ids)}", 5, thinking=thinking)


def stream(
    made: MessageAnswer, events: list[Event], reason: FinishReason = FinishReason.STOP, stop: str | None = None
) -> list[dict[str, Any]]:
    """What goes over the wire."""
    events_of_answer = [
        *made.start_frames(Usage(7, 0)),
        *made.event_frames(events),
        *made.end_frames(AnswerEnd(reason, Usage(7, 5), stop)),
    ]
    return [json.loads(event.model_dump_json()) for event in events_of_answer]


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that a client makes of a stream."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append(event["content_block"] | {"partial": ""})
            case "content_block_delta":
                assert event["index"] == len(blocks) - 1
                for name, piece in event["delta"].items():
                    if name == "partial_json":
                        blocks[-1]["partial"] += piece
                    elif name != "type":
                        blocks[-1][name] += piece
    for block in blocks:
        partial = block.pop("partial")
        if partial:
            block["input"] = json.loads(partial)
    return blocks


@given(ANSWER, REASON)
def test_a_stream_tells_the_whole_message(events: list[Event], reason: FinishReason) -> None:
    made = answer()
    streamed = stream(made, events, reason)
    for event, parsed in zip(streamed, EVENTS.validate_python(streamed), strict=True):
        assert parsed.type == event["type"]
    whole = Message.model_validate_json(made.build_answer().model_dump_json())
    assert joined(streamed) == json.loads(made.build_answer().model_dump_json())["content"]
    assert streamed[0]["type"] == "message_start"
    assert [event["type"] for event in streamed[-2:]] == ["message_delta", "message_stop"]
    assert streamed[0]["message"]["content"] == []
    assert "".join(block.text for block in whole.content if block.type == "text") == content(events)
    assert "".join(block.thinking for block in whole.content if block.type == "thinking") == reasoning(events)
    assert [(block.name, block.input) for block in whole.content if block.type == "tool_use"] == calls(events)
    ended = "tool_use" if calls(events) else "end_turn"
    assert whole.stop_reason == ("max_tokens" if reason is FinishReason.LENGTH else ended)
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (7, 5)


@given(ANSWER)
def test_a_message_that_is_sent_back_is_the_same_turn(events: list[Event]) -> None:
    made = answer()
    stream(made, events)
    whole = json.loads(made.build_answer().model_dump_json())
    results = [{"type": "tool_result", "tool_use_id": b["id"]} for b in whole["content"] if b["type"] == "tool_use"]
    question = {"role": "user", "content": "Hi"}
    after = {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]}
    history = [question, {"role": "assistant", "content": whole["content"]}, after]
    first, turn, *rest = chat_of(MessagesRequest.model_validate({"max_tokens": 9, "messages": history})).body[
        "messages"
    ]
    assert first == question
    texts = [block["text"] for block in whole["content"] if block["type"] == "text"]
    assert turn["content"] == "\n".join(texts)
    assert turn.get("reasoning_content", "").replace("\n", "") == reasoning(events).replace("\n", "")
    tool_calls = turn.get("tool_calls", [])
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in tool_calls] == calls(
        events
    )
    assert rest == [
        *({"role": "tool", "tool_call_id": call["id"], "content": ""} for call in tool_calls),
        {"role": "user", "content": "And?"},
    ]


def test_the_order_of_events() -> None:
    events = [Reasoning("r"), Content("c"), CallBegin("f"), Arguments("{}")]
    streamed = stream(answer(), events)
    kinds = [event.get("delta", {}).get("type") or event["type"] for event in streamed]
    assert kinds == [
        "message_start",
        "content_block_start", "thinking_delta", "signature_delta", "content_block_stop",
        "content_block_start", "text_delta", "content_block_stop",
        "content_block_start", "input_json_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


def test_the_stop_string_is_told() -> None:
    made = answer()
    streamed = stream(made, [Content("a")], stop="END")
    assert streamed[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert made.build_answer().stop_sequence == "END"


def test_thinking_that_is_not_to_be_told() -> None:
    made = answer(thinking=False)
    streamed = stream(made, [Reasoning("secret"), Content("c")])
    assert "secret" not in json.dumps(streamed) + made.build_answer().model_dump_json()
    assert [block.type for block in made.build_answer().content] == ["thinking", "text"]


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", '{"a": NaN}', '{"a": "\\ud800"}', "x", "[" * 100_000])
def test_arguments_that_are_no_object_are_told_as_text(text: str) -> None:
    made = answer()
    stream(made, [CallBegin("f"), Arguments(text)], FinishReason.LENGTH)
    (block,) = json.loads(made.build_answer().model_dump_json())["content"]
    assert block["input"] == {"INVALID_JSON": text}


@pytest.mark.parametrize(
    ("given", "template_variables"),
    [({}, {"enable_thinking": True}), ({"x": 1}, {"x": 1, "enable_thinking": True}), ({"enable_thinking": False},) * 2],
)
def test_thinking_goes_with_variables_of_the_template(
    given: dict[str, Any], template_variables: dict[str, Any]
) -> None:
    """The client's own word about the same variable is the closer one."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"max_tokens": 2000, "messages": [{"role": "user", "content": "Hi"}], "thinking": thinking}
    parsed = MessagesRequest.model_validate(body | {"chat_template_kwargs": given})
    assert prompt_of(parsed).body["chat_template_kwargs"] == template_variables
    assert parsed.chat_template_kwargs == given


@given(ANSWER, st.booleans())
def test_one_call_is_the_first(events: list[Event], parallel: bool) -> None:
    """In chats as well, whose deltas are made of the same."""
    of_answer = Calls(parallel=parallel)
    filtered = [event for event in events for event in of_answer.filter_events([event])]
    assert calls(filtered) == (calls(events) if parallel else calls(events)[:1])
    message = ChoiceEvents(lambda: "c", parallel=parallel).write_message(events)
    chat = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]
    assert chat == calls(filtered)
    # Texts around a call that is left out have a line break between them.
    assert content(filtered) == content(events) or not parallel
    assert "".join(content(filtered).split()) == "".join(content(events).split())
    assert reasoning(filtered) == reasoning(events)
