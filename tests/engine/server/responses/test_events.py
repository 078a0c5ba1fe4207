"""Whatever a model writes, its response and its stream are as the official client's types have them, and agree."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.engine.server.answers import ANSWER, REASON, calls, content, reasoning

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.generation.generation import Usage
from paternoster_engine.server.generation.output_text import SequenceDelta, put_together
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning
from paternoster_engine.server.responses.events import ResponseAnswer
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.translate import chat_of
from paternoster_engine.server.translation.answer import AnswerEnd

USAGE = Usage(prompt_tokens=7, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
EVENTS: TypeAdapter[Any] = TypeAdapter(list[ResponseStreamEvent])
ENDS = {FinishReason.STOP: "completed", FinishReason.LENGTH: "incomplete"}


def answer(**fields: Any) -> ResponseAnswer:
    ids = count()
    body = ResponsesRequest.model_validate({"input": "Hi"} | fields)
    return ResponseAnswer("m", body, chat_of(body).offer.tools, lambda: f"call_{next(ids)}", lambda tokens: [])


def stream(made: ResponseAnswer, pieces: list[list[Event]], reason: FinishReason) -> list[dict[str, Any]]:
    """What goes over the wire."""
    events_of_answer = [*made.start_frames(USAGE)]
    for piece in pieces:
        events_of_answer += made.event_frames(piece)
    events_of_answer += made.end_frames(AnswerEnd(reason, USAGE))
    return [json.loads(event.model_dump_json()) for event in events_of_answer]


@given(ANSWER, REASON)
@settings(max_examples=40)
def test_a_stream_tells_the_whole_response(events: list[Event], reason: FinishReason) -> None:
    made = answer()
    streamed = stream(made, [[event] for event in events], reason)
    for event, parsed in zip(streamed, EVENTS.validate_python(streamed), strict=True):
        assert parsed.type == event["type"]
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    assert [event["type"] for event in streamed[:2]] == ["response.created", "response.in_progress"]
    assert streamed[-1]["type"] == f"response.{ENDS[reason]}"
    whole = Response.model_validate_json(made.build_answer().model_dump_json())
    assert streamed[-1]["response"] == json.loads(made.build_answer().model_dump_json())
    assert whole.status == ENDS[reason]
    assert (whole.incomplete_details is not None) == (reason is FinishReason.LENGTH)
    assert whole.output_text == content(events)
    assert [(item.name, json.loads(item.arguments)) for item in whole.output if item.type == "function_call"] == calls(
        events
    )
    assert [event["item"] for event in streamed if event["type"] == "response.output_item.done"] == streamed[-1][
        "response"
    ]["output"]
    for index, item in enumerate(whole.output):
        deltas = [e["delta"] for e in streamed if e.get("output_index") == index and e["type"].endswith(".delta")]
        item_text = item.arguments if item.type == "function_call" else item.content[0].text
        assert "".join(deltas) == item_text
        assert item.status == (
            "incomplete" if reason is FinishReason.LENGTH and item == whole.output[-1] else "completed"
        )


@given(ANSWER)
@example([Reasoning("0"), Content("0"), Reasoning("0"), Content("0")])
def test_an_answer_that_is_sent_back_is_the_same_turn(events: list[Event]) -> None:
    made = answer()
    stream(made, [events], FinishReason.STOP)
    output = json.loads(made.build_answer().model_dump_json())["output"]
    question = {"role": "user", "content": "Hi"}
    body = chat_of(ResponsesRequest.model_validate({"input": [question, *output]})).body
    first, turn = body["messages"]
    assert first == question
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    assert turn["content"] == "\n".join(text for text in texts if text)
    assert turn.get("reasoning_content", "").replace("\n", "") == reasoning(events).replace("\n", "")
    assert [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in turn.get("tool_calls", [])
    ] == calls(events)


@given(ANSWER, st.integers(0, 6))
def test_pieces_that_come_together_are_the_same(events: list[Event], cut: int) -> None:
    apart, together = answer(), answer()
    stream(apart, [[event] for event in events], FinishReason.STOP)
    stream(together, [events[:cut], events[cut:]], FinishReason.STOP)

    def events_without_ids(made: ResponseAnswer) -> list[Any]:
        return [item.model_dump(exclude={"id"}) for item in made.build_answer().output]

    assert events_without_ids(apart) == events_without_ids(together)


def test_the_order_of_events() -> None:
    streamed = stream(answer(), [[Content("a")], [Content("b")]], FinishReason.STOP)
    assert [event["type"].removeprefix("response.") for event in streamed] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "invalid_prompt"), (429, "rate_limit_exceeded"), (500, "server_error"), (504, "server_error")],
)
def test_a_failure_in_mid_stream(status: int, code: str) -> None:
    made = answer()
    events_of_answer = [
        *made.start_frames(USAGE),
        *made.event_frames([Content("a")]),
        *made.failure_frames(status, "broken"),
    ]
    parsed = EVENTS.validate_python([json.loads(event.model_dump_json()) for event in events_of_answer])[-1]
    assert parsed.type == "response.failed"
    assert (parsed.response.status, parsed.response.error.code, parsed.response.error.message) == (
        "failed", code, "broken",
    )  # fmt: skip
    assert parsed.response.output[0].status == "incomplete"


def test_what_was_asked_for_is_told() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    made = answer(
        tools=[tool], tool_choice={"type": "function", "name": "f"}, text={"format": form}, instructions="Be brief.",
        metadata={"a": "b"}, temperature=0.5, max_output_tokens=9, reasoning={"effort": "low"}, user="me",
    )  # fmt: skip
    stream(made, [], FinishReason.STOP)
    whole = Response.model_validate_json(made.build_answer().model_dump_json())
    assert whole.tools[0].model_dump(exclude_unset=True) == tool
    assert whole.tool_choice.model_dump() == {"type": "function", "name": "f"}  # type: ignore[union-attr]
    assert whole.text is not None
    assert whole.text.model_dump(by_alias=True, exclude_unset=True) == {"format": form}
    assert (whole.instructions, whole.metadata, whole.temperature) == ("Be brief.", {"a": "b"}, 0.5)
    assert (whole.max_output_tokens, whole.user, whole.store) == (9, "me", False)  # type: ignore[attr-defined]
    assert whole.reasoning is not None
    assert whole.reasoning.effort == "low"
    assert whole.usage is not None
    assert whole.usage.model_dump(exclude_unset=True) == {
        "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12,
    }  # fmt: skip


def test_a_slow_reader_gets_log_probabilities_with_the_message_of_their_tokens() -> None:
    """Deltas that it did not fetch in time are put together, with texts on both sides of a call."""
    body = ResponsesRequest.model_validate({"input": "Hi"})

    def spelled(tokens: Any) -> list[Any]:
        return [{"token": token, "logprob": -1.0, "bytes": [], "top_logprobs": []} for token in tokens]

    made = ResponseAnswer("m", body, {}, lambda: "call", spelled)
    written: list[Event] = [
        Content("On", ("On",)), Content("e", ("e",)), CallBegin("f"), Arguments("{}"), Content("Two", ("Tw", "o")),
    ]  # fmt: skip
    delta = put_together([SequenceDelta("", events=(event,)) for event in written])
    streamed = stream(made, [list(delta.events)], FinishReason.STOP)
    first, _, second = made.build_answer().output
    assert [part["token"] for part in first.content[0].logprobs] == ["On", "e"]
    assert [part["token"] for part in second.content[0].logprobs] == ["Tw", "o"]
    deltas = [event for event in streamed if event["type"] == "response.output_text.delta"]
    assert [[part["token"] for part in event["logprobs"]] for event in deltas] == [["On", "e"], ["Tw", "o"]]
