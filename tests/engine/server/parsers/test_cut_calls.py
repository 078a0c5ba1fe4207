"""A call that the end of the answer cuts: a call with what was written of it, and no text with marks of its format."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from paternoster_engine.server.parsers.call_form import CallForm, RequiredCalls
from paternoster_engine.server.parsers.calls import mistral
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, join_events
from paternoster_engine.server.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, AnswerFormat

SCHEMA: dict[str, Any] = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = {"get_weather": SCHEMA, "get_time": SCHEMA}
WRITTEN = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "R</b>", "days": 3}}\n</tool_call>',
    "llama3_json": '{"name": "get_weather", "parameters": {"city": "R</b>", "days": 3}}',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "R</b>", "days": 3}}]',
    "mistral_named": '[TOOL_CALLS]get_weather[ARGS]{"city": "R</b>", "days": 3}',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nR</b>\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>R</b></arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "pythonic": '[get_weather(city="R</b>", days=3)]',
    "harmony": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "R</b>", "days": 3}'
    "<|call|>",
}
MARKS = {name: text[: text.index("get_")].rstrip() for name, text in WRITTEN.items()}
"""What is before the name."""
NO_MARKS = ("llama3_json", "pythonic")
"""What is before the name may be any text."""


def _format(name: str) -> AnswerFormat:
    return AnswerFormat(TOOL_FORMATS[name.removesuffix("_named")], channels=name == "harmony")


def _parse(name: str, text: str, required: Sequence[str] = (), form: AnswerFormat | None = None) -> list[Event]:
    calls = RequiredCalls([(tool, SCHEMA) for tool in required], several=True) if required else None
    results = []
    for pieces in ([text], list(text)):
        parser = (form or _format(name)).build_parser(TOOLS, required=calls)
        results.append(
            join_events([*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()])
        )
    assert results[0] == results[1]
    return results[0]


def _whole(name: str) -> str:
    call, arguments = _parse(name, WRITTEN[name])
    assert call == CallBegin("get_weather")
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {"city": "R</b>", "days": 3}
    return arguments.text


@pytest.mark.parametrize("name", WRITTEN)
def test_the_one_function_that_must_be_called_is_named_however_early_it_is_cut(name: str) -> None:
    text, whole = WRITTEN[name], _whole(name)
    for end in range(len(text)):
        if name == "harmony" and 0 < end <= len("<|channel|>"):
            # A thought may begin so, too.
            continue
        call, *rest = _parse(name, text[:end], ["get_weather"]) or [None]
        assert call == (CallBegin("get_weather") if end else None), text[:end]
        arguments_text = "".join(event.text for event in rest if isinstance(event, Arguments))
        assert len(rest) <= 1
        assert whole.startswith(arguments_text), text[:end]


@pytest.mark.parametrize("name", WRITTEN)
def test_one_of_several_that_must_be_called_is_named_as_soon_as_its_name_is_over(name: str) -> None:
    text, whole = WRITTEN[name], _whole(name)
    over = text.index("get_weather") + len("get_weather")
    for end in range(len(text)):
        events = _parse(name, text[:end], list(TOOLS))
        if end <= over:
            assert events == [], text[:end]
            continue
        call, *rest = events
        assert call == CallBegin("get_weather"), text[:end]
        assert whole.startswith("".join(event.text for event in rest if isinstance(event, Arguments)))
        assert len(rest) <= 1


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_that_may_be_is_no_text_from_its_beginning_on(name: str) -> None:
    text = WRITTEN[name]
    over = text.index("get_weather") + len("get_weather")
    for before in ("",) if name in (*NO_MARKS, "harmony") else ("", "Let me see.\n"):
        for end in range(len(text)):
            first, *rest = _parse(name, before + text[:end]) or [None]
            if before and isinstance(first, Content):
                # A mark alone may be of a text about marks.
                assert first.text.removeprefix(before.strip()).strip() in ("", *_beginnings(MARKS[name])), text[:end]
                first = rest[0] if rest else None
            if end > over:
                assert first == CallBegin("get_weather"), text[:end]
            elif name not in NO_MARKS and end > len(MARKS[name]):
                assert not isinstance(first, Content), text[:end]


def _beginnings(marker: str) -> list[str]:
    return [marker[:end] for end in range(len(marker) + 1)]


@pytest.mark.parametrize("required", [["get_weather"], list(TOOLS)])
def test_a_second_call_that_is_cut_is_no_text(required: list[str]) -> None:
    text = WRITTEN["hermes"]
    for end in range(len(text)):
        first, arguments, *rest = _parse("hermes", f"{text}\n{text[:end]}", required)
        assert (first, arguments) == (CallBegin("get_weather"), Arguments(_whole("hermes")))
        assert not any(isinstance(event, Content) for event in rest)


def test_thinking_that_is_cut_is_no_call() -> None:
    form = AnswerFormat(TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
    for text in ("<think>\nI must", "<think>\nI must.\n</think>", "<think>\nI must.\n</think>\n\n"):
        assert not any(isinstance(event, CallBegin) for event in _parse("hermes", text, ["get_weather"], form))
    assert _parse("hermes", "<think>\nI must.\n</think>\n\n<tool", ["get_weather"], form)[1:] == [
        CallBegin("get_weather")
    ]


def test_the_forms_are_those_of_the_grammars() -> None:
    for name, text in WRITTEN.items():
        make = TOOL_FORMATS[name.removesuffix("_named")].form
        assert make is not None
        form: CallForm = make(mistral.ARGS if name == "mistral_named" else "")
        assert text.startswith(form.opening + form.before % "get_weather")
