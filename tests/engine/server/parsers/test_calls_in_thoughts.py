"""Calls that a model begins before it has closed its thought; before the thought's end a call is a draft."""

import pytest
from tests.engine.server.parsers.test_text_around_calls import CALLED, CALLS, TOOLS

from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat
from paternoster_engine.server.parsers.think import MISTRAL, THINK

CALLS_WITH_MARKS = CALLS | {"llama3_json": '<|python_tag|>{"name": "f", "parameters": {"a": 1}}'}


def _parse(name: str, text: str, *, begun: bool, tools: dict[str, dict[str, object]] | None = None) -> list[Event]:
    marks = MISTRAL if name == "mistral" else THINK
    form = AnswerFormat(TOOL_FORMATS[name], marks)
    written = text.replace("END", marks.end)
    results = []
    for pieces in ([written], list(written)):
        parser = form.build_parser(TOOLS if tools is None else tools, marks.begin if begun else "")
        events = [event for piece in ["" if begun else marks.begin, *pieces] for event in parser.parse_piece(piece)]
        results.append(join_events([*events, *parser.finish()]))
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", CALLS_WITH_MARKS)
def test_a_call_in_a_thought_that_nothing_ends_is_a_call(name: str, begun: bool) -> None:
    call = CALLS_WITH_MARKS[name]
    assert _parse(name, f"I need f.\n{call}", begun=begun) == [Reasoning("I need f."), *CALLED]
    assert _parse(name, call, begun=begun) == CALLED


@pytest.mark.parametrize("name", CALLS_WITH_MARKS)
def test_a_call_before_the_end_of_the_thought_is_a_draft(name: str) -> None:
    call = CALLS_WITH_MARKS[name]
    draft = f"Perhaps {call} now."
    assert _parse(name, f"{draft}\nEND\n\nNo.", begun=True) == [Reasoning(draft), Content("No.")]
    assert _parse(name, f"{draft}\nEND\n\n{call}", begun=True) == [Reasoning(draft), *CALLED]


@pytest.mark.parametrize("name", CALLS_WITH_MARKS)
def test_marks_without_a_call_are_of_the_thought(name: str) -> None:
    (begin, *_) = TOOL_FORMATS[name].begins
    for text in (f"I may write {begin} next", f"I may write {begin}g next {begin}"):
        assert _parse(name, text, begun=True) == [Reasoning(text)]
    draft = f"Perhaps {CALLS_WITH_MARKS[name]}"
    assert _parse(name, draft, begun=True, tools={}) == [Reasoning(draft)]


@pytest.mark.parametrize("name", CALLS)
def test_texts_around_calls_of_a_thought_are_reasoning(name: str) -> None:
    call = CALLS[name]
    events = _parse(name, f"First {call} then {call}", begun=True)
    assert [event for event in events if isinstance(event, CallBegin | Arguments)] == CALLED * 2
    assert [event.text.strip() for event in events if isinstance(event, Reasoning)] == ["First", "then"]
    assert not any(isinstance(event, Content) for event in events)
