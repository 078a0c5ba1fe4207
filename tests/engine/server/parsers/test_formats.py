"""Every format: calls come out as they were meant, wherever the text is cut; what is no call stays text."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.server.parsers.events import Arguments, Call, Content, Event, Reasoning, joined
from paternoster_engine.server.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, AnswerFormat

NAMES = ("f", "get_weather", "a.b-c")
FORMATS = {name: AnswerFormat(tools=tools, channels=name == "harmony") for name, tools in TOOL_FORMATS.items()}


def parse(form: AnswerFormat, pieces: Iterable[str], prompt: str = "", names: Iterable[str] = NAMES) -> list[Event]:
    parser = form.parser(tuple(names), prompt)
    events = [event for piece in pieces for event in parser.push(piece)]
    return joined([*events, *parser.finish()])


def calls(events: Iterable[Event]) -> list[tuple[str, Any]]:
    """Names and what the arguments say."""
    found: list[tuple[str, str]] = []
    for event in events:
        match event:
            case Call(name):
                found.append((name, ""))
            case Arguments(text):
                found[-1] = (found[-1][0], found[-1][1] + text)
    return [(name, json.loads(text)) for name, text in found]


def content(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8"), max_size=12)
    | st.sampled_from(["</tool_call>", '"}', "\\", "'", "[TOOL_CALLS]", "a\nb", "<|call|>", "é😀", ")]", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
VALUES = st.dictionaries(st.sampled_from(["a", "b", "name", "arguments", "parameters"]), JSON, max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), min_size=1, max_size=3)


def write(name: str, said: list[tuple[str, Any]], *, ascii_only: bool, indent: int | None, swapped: bool) -> str:
    """As a model writes them."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    def objects(key: str) -> list[str]:
        fields = [({key: a, "name": n} if swapped else {"name": n, key: a}) for n, a in said]
        return [text(item) for item in fields]

    match name:
        case "hermes":
            return "\n".join(f"<tool_call>\n{item}\n</tool_call>" for item in objects("arguments"))
        case "llama3_json":
            return "; ".join(objects("parameters"))
        case "mistral":
            if indent:
                return "".join(f"[TOOL_CALLS]{n}{'[ARGS]' if swapped else ''}{text(a)}" for n, a in said)
            return f"[TOOL_CALLS] [{', '.join(objects('arguments'))}]"
        case "pythonic":
            return "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in said) + "]"
        case _:
            return "<|start|>assistant".join(
                f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{text(a)}<|call|>" for n, a in said
            )


def _cut(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 10**6), max_size=12)


@pytest.mark.parametrize("name", FORMATS)
@given(
    said=CALLS, cuts=CUTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), swapped=st.booleans(),
    before=st.sampled_from(["", "Let me see.\n"]), each=st.booleans(),
)  # fmt: skip
def test_calls_come_out_wherever_the_text_is_cut(
    name: str, said: Any, cuts: list[int], ascii_only: bool, indent: int | None, swapped: bool, before: str, each: bool
) -> None:
    whole_answer = name in ("llama3_json", "pythonic", "harmony")
    if name == "harmony" and "<|call|>" in json.dumps(said):
        # There it is a token, which no argument can have.
        return
    text = ("" if whole_answer else before) + write(name, said, ascii_only=ascii_only, indent=indent, swapped=swapped)
    events = parse(FORMATS[name], list(text) if each else _cut(text, cuts))
    assert calls(events) == [(n, a) for n, a in said], text
    assert content(events) == ("" if whole_answer else before.rstrip())
    assert events == parse(FORMATS[name], [text])


FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<think>", "</think>", "[", "]", "{",
        "}", '{"name": "f", "arguments": {', '"a": 1', '"name"', ": ", ", ", '"f"', "f", "f(", "a=1", ")", ";", "\n",
        " ", '"', "\\", "'", "é", "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>assistant",
        "text", " to=functions.f", "<|call|>", "<", "[TOOL", "<|chan", "null", "[[", "<|python_start|>", "-", "f{",
    ]
)  # fmt: skip
REASONING: dict[str, Any] = {**REASONING_FORMATS, "none": None}


@pytest.mark.parametrize("name", FORMATS)
@given(fragments=st.lists(FRAGMENTS, max_size=25), cuts=CUTS, reasoning=st.sampled_from(list(REASONING)),
       begun=st.booleans())  # fmt: skip
def test_any_text_gives_the_same_wherever_it_is_cut(
    name: str, fragments: list[str], cuts: list[int], reasoning: str, begun: bool
) -> None:
    marks = None if name == "harmony" else REASONING[reasoning]
    form = AnswerFormat(TOOL_FORMATS[name], marks, name == "harmony")
    text, prompt = "".join(fragments), f"x{marks.begin}\n" if begun and marks else ""
    whole = parse(form, [text], prompt)
    assert parse(form, _cut(text, cuts), prompt) == whole
    assert parse(form, list(text), prompt) == whole
    if marks is None and name != "harmony" and not any(isinstance(event, Call) for event in whole):
        assert content(whole) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "I would write <tool_call> and so on"),
        ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        ("hermes", "<tool_call>call f now</tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": 7}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "argum'),
        ("hermes", "a <tool_"),
        ("llama3_json", '{"name": "Bob", "parameters": {"age": 7}}'),
        ("llama3_json", '{"a": [1, 2], "b": null}'),
        ("llama3_json", 'The call is {"name": "f", "parameters": {}}'),
        ("llama3_json", "<|python_tag|>print(1)"),
        ("mistral", "[TOOL_CALLS] none"),
        ("mistral", '[TOOL_CALLS][{"name": "g", "arguments": {}}]'),
        ("mistral", "[TOOL_CALLS]f and more"),
        ("pythonic", "[1, 2, 3]"),
        ("pythonic", "[f(1)]"),
        ("pythonic", "[f(a=g())]"),
        ("pythonic", "[f(a=1e999)]"),
        ("pythonic", "[f(a={1: 2})]"),
        ("pythonic", "[f(a=" + "[" * 500 + "]" * 500 + ")]"),
        ("pythonic", "[f(a='\\ud800')]"),
        ("pythonic", "call [f()]"),
        ("harmony", "Just text without channels."),
        ("harmony", "to=nobody in particular"),
    ],
)
def test_what_only_looks_like_a_call_is_text(name: str, text: str) -> None:
    for pieces in ([text], list(text)):
        assert parse(FORMATS[name], pieces) == [Content(text)]


@pytest.mark.parametrize(
    ("name", "text", "events"),
    [
        # What follows a call, or is between calls and no white space, is text.
        ("hermes", 'a <tool_call>{"name": "f"}</tool_call> b',
         [Content("a"), Call("f"), Arguments("{}"), Content("b")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": null}', [Call("f"), Arguments("{}")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
         [Call("f"), Arguments('{"a": 1}')]),
        ("hermes", '<tool_call>[{"name": "f"}, {"name": "f", "arguments": {"a": []}}]</tool_call>',
         [Call("f"), Arguments("{}"), Call("f"), Arguments('{"a": []}')]),
        # Cut off, or not closed: the arguments are as the model left them.
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "x', [Call("f"), Arguments('{"a": "x')]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>ok',
         [Call("f"), Arguments('{"a": 1'), Content("ok")]),
        ("hermes", '<tool_call>no<tool_call>{"name": "f"}</tool_call>',
         [Content("<tool_call>no"), Call("f"), Arguments("{}")]),
        ("llama3_json", '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": "1"}}',
         [Call("f"), Arguments('{"a": "1"}')]),
        ("llama3_json", 'See:<|python_tag|>{"name": "f", "parameters": {}}',
         [Content("See:"), Call("f"), Arguments("{}")]),
        ("llama3_json", '{"name": "f", "parameters": {}} there', [Call("f"), Arguments("{}"), Content(" there")]),
        ("mistral", 'x[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}',
         [Content("x"), Call("f"), Arguments('{"a": 1}')]),
        ("pythonic", "<|python_start|>[f(a=true, b=-1, c=('x',), d={'k': None})]<|python_end|>",
         [Call("f"), Arguments('{"a": true, "b": -1, "c": ["x"], "d": {"k": null}}')]),
        ("pythonic", "[f(), g()]", [Call("f"), Arguments("{}"), Content(", g()]")]),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
         "I look.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
         [Reasoning("Hm."), Content("I look."), Call("f"), Arguments("{}")]),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
         [Reasoning("Hm."), Content("Yes.")]),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|chan", [Reasoning("Hm.")]),
        ("harmony", "<|channel|>analysis to=python code<|message|>1+1<|call|>", [Reasoning("1+1")]),
    ],
)  # fmt: skip
def test_mixed_answers(name: str, text: str, events: list[Event]) -> None:
    for pieces in ([text], list(text)):
        assert parse(FORMATS[name], pieces) == events


@pytest.mark.parametrize(
    ("text", "prompt", "events"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "", [Reasoning("Hm."), Content("Yes.")]),
        ("Hm.\n</think>\n\nYes.", "...<think>\n", [Reasoning("Hm."), Content("Yes.")]),
        ("<think>Hm.</think>Yes.", "...<think>", [Reasoning("Hm."), Content("Yes.")]),
        ("<think>\n\n</think>\n\nYes.", "", [Content("Yes.")]),
        ("Yes.", "...<think>\n\n</think>\n\n", [Content("Yes.")]),
        ("I <think> so.</think>", "", [Content("I <think> so.</think>")]),
        ("<think>Hm", "", [Reasoning("Hm")]),
        ('<think><tool_call>{"name": "f"}</tool_call></think><tool_call>{"name": "f"}</tool_call>', "",
         [Reasoning('<tool_call>{"name": "f"}</tool_call>'), Call("f"), Arguments("{}")]),
    ],
)  # fmt: skip
def test_reasoning_comes_before_calls(text: str, prompt: str, events: list[Event]) -> None:
    form = AnswerFormat(TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
    for pieces in ([text], list(text)):
        assert parse(form, pieces, prompt) == events


def test_arguments_are_told_while_they_are_written() -> None:
    parser = FORMATS["hermes"].parser(NAMES)
    assert parser.push('<tool_call>{"name": "f", "arguments": {"te') == [Call("f"), Arguments('{"te')]
    assert parser.push('xt": "one') == [Arguments('xt": "one')]
    assert parser.push(' two"}}</tool_') == [Arguments(' two"}')]
    assert parser.push("call>") == parser.finish() == []


def test_without_tools_nothing_is_a_call() -> None:
    for name, said in (("hermes", '<tool_call>{"name": "f"}</tool_call>'), ("pythonic", "[f()]")):
        assert parse(FORMATS[name], [said], names=()) == [Content(said)]


def test_text_is_told_at_once() -> None:
    parser = FORMATS["hermes"].parser(NAMES)
    assert [parser.push(piece) for piece in ("one", " two", " <", "b", "\n")] == [
        [Content("one")], [Content(" two")], [], [Content(" <b")], [],
    ]  # fmt: skip
