"""Every format: calls come out as they were meant, wherever the text is cut; what is no call stays text."""

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.server.parsers.calls.typed_values import json_of
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, AnswerFormat, Tools
from paternoster_engine.server.parsers.schemas import ArgumentTypes

NAMES = ("f", "get_weather", "a.b-c")
ANY: Tools = {name: {} for name in NAMES}
"""Tools of which nothing is known but their names."""
XML = ("qwen3_coder", "glm45")
FORMATS = {name: AnswerFormat(tools=tools, channels=name == "harmony") for name, tools in TOOL_FORMATS.items()}


def parse(form: AnswerFormat, pieces: Iterable[str], prompt: str = "", tools: Tools = ANY) -> list[Event]:
    parser = form.build_parser(tools, prompt)
    events = [event for piece in pieces for event in parser.parse_piece(piece)]
    return join_events([*events, *parser.finish()])


def calls(events: Iterable[Event]) -> list[tuple[str, Any]]:
    """Names and what the arguments say."""
    found: list[tuple[str, str]] = []
    for event in events:
        match event:
            case CallBegin(name):
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


def write(name: str, made_calls: list[tuple[str, Any]], *, ascii_only: bool, indent: int | None, swapped: bool) -> str:
    """Write calls like a model."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    def objects(key: str) -> list[str]:
        fields = [({key: a, "name": n} if swapped else {"name": n, key: a}) for n, a in made_calls]
        return [text(item) for item in fields]

    match name:
        case "hermes":
            return "\n".join(f"<tool_call>\n{item}\n</tool_call>" for item in objects("arguments"))
        case "llama3_json":
            return "; ".join(objects("parameters"))
        case "mistral":
            if indent:
                return "".join(f"[TOOL_CALLS]{n}{'[ARGS]' if swapped else ''}{text(a)}" for n, a in made_calls)
            return f"[TOOL_CALLS] [{', '.join(objects('arguments'))}]"
        case "pythonic":
            return "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in made_calls) + "]"
        case "qwen3_coder":
            return "\n".join(
                f"<tool_call>\n<function={n}>\n"
                + "".join(f"<parameter={k}>\n{_plain(v, text)}\n</parameter>\n" for k, v in a.items())
                + "</function>\n</tool_call>"
                for n, a in made_calls
            )
        case "glm45":
            return "\n".join(
                f"<tool_call>{n}\n"
                + "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{_plain(v, text)}</arg_value>\n" for k, v in a.items())
                + "</tool_call>"
                for n, a in made_calls
            )
        case _:
            return "<|start|>assistant".join(
                f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{text(a)}<|call|>"
                for n, a in made_calls
            )


def _plain(value: Any, text: Callable[[Any], str]) -> str:
    return value if isinstance(value, str) else text(value)


def _schema(made_calls: list[tuple[str, Any]]) -> dict[str, Any]:
    """Schema of tools whose arguments have the types that they have in these calls."""
    types: dict[str, str] = {}
    for _, arguments in made_calls:
        for name, value in arguments.items():
            types[name] = "string" if isinstance(value, str) else "other"
    return {
        "properties": {
            name: {"type": "string"} if kind == "string" else {"type": ["null", "boolean", "number", "array", "object"]}
            for name, kind in types.items()
        }
    }


def _cut(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 10**6), max_size=12)


@pytest.mark.parametrize("name", FORMATS)
@given(
    made_calls=CALLS, cuts=CUTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), swapped=st.booleans(),
    before=st.sampled_from(["", "Let me see.\n"]), each=st.booleans(),
)  # fmt: skip
def test_calls_come_out_wherever_the_text_is_cut(
    name: str,
    made_calls: Any,
    cuts: list[int],
    ascii_only: bool,
    indent: int | None,
    swapped: bool,
    before: str,
    each: bool,
) -> None:
    whole_answer = name in ("llama3_json", "pythonic", "harmony")
    if name == "harmony" and "<|call|>" in json.dumps(made_calls):
        # There it is a token, which no argument can have.
        return
    tools = {n: _schema([call for call in made_calls if call[0] == n]) for n in NAMES}
    if name in XML:
        # One tool's argument has one type; no text of an argument can have the marks around it.
        made_calls = [(n, a) for i, (n, a) in enumerate(made_calls) if n not in [m for m, _ in made_calls[:i]]]
        tools = {n: _schema([call for call in made_calls if call[0] == n]) for n in NAMES}
        if "</" in json.dumps(made_calls):
            return
    text = ("" if whole_answer else before) + write(
        name, made_calls, ascii_only=ascii_only, indent=indent, swapped=swapped
    )
    events = parse(FORMATS[name], list(text) if each else _cut(text, cuts), tools=tools)
    assert calls(events) == [(n, a) for n, a in made_calls], text
    assert content(events) == ("" if whole_answer else before.rstrip())
    assert events == parse(FORMATS[name], [text], tools=tools)


FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<think>", "</think>", "[", "]", "{",
        "}", '{"name": "f", "arguments": {', '"a": 1', '"name"', ": ", ", ", '"f"', "f", "f(", "a=1", ")", ";", "\n",
        " ", '"', "\\", "'", "é", "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>assistant",
        "text", " to=functions.f", "<|call|>", "<", "[TOOL", "<|chan", "null", "[[", "<|python_start|>", "-", "f{",
        "<function=f>", "<parameter=a>", "</parameter>", "</function>", "<arg_key>", "</arg_key>", "<arg_value>",
        "</arg_value>",
    ]
)  # fmt: skip
BEGINNINGS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=")
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
    if marks is None and name != "harmony" and not any(isinstance(event, CallBegin) for event in whole):
        content_text = content(whole)
        # The beginning of a call that the end cuts is left out.
        assert content_text == text or (
            text.startswith(content_text) and text[len(content_text) :].startswith(BEGINNINGS)
        )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "I would write <tool_call> and so on"),
        ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        ("hermes", "<tool_call>call f now</tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": 7}</tool_call>'),
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
        ("pythonic", "[f(a=(1e999,))]"),
        ("pythonic", "[f(a={1: 2})]"),
        ("pythonic", "[f(a=" + "[" * 5000 + "]" * 5000 + ")]"),
        ("pythonic", "call [f()]"),
        ("harmony", "Just text without channels."),
        ("qwen3_coder", "I would write <tool_call> and so on"),
        ("qwen3_coder", "<tool_call><function=unknown></function></tool_call>"),
        ("qwen3_coder", "a <function=f and more"),
        ("qwen3_coder", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
        ("glm45", "<tool_call>unknown</tool_call>"),
        ("glm45", "<tool_call>f and more"),
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
         [Content("a"), CallBegin("f"), Arguments("{}"), Content("  b")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": null}', [CallBegin("f"), Arguments("{}")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
         [CallBegin("f"), Arguments('{"a": 1}')]),
        ("hermes", '<tool_call>[{"name": "f"}, {"name": "f", "arguments": {"a": []}}]</tool_call>',
         [CallBegin("f"), Arguments("{}"), CallBegin("f"), Arguments('{"a": []}')]),
        # Cut off, or not closed: the arguments are as the model left them.
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "x', [CallBegin("f"), Arguments('{"a": "x')]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>ok',
         [CallBegin("f"), Arguments('{"a": 1'), Content("ok")]),
        ("hermes", '<tool_call>no<tool_call>{"name": "f"}</tool_call>',
         [Content("<tool_call>no"), CallBegin("f"), Arguments("{}")]),
        ("llama3_json", '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": "1"}}',
         [CallBegin("f"), Arguments('{"a": "1"}')]),
        ("llama3_json", 'See:<|python_tag|>{"name": "f", "parameters": {}}',
         [Content("See:"), CallBegin("f"), Arguments("{}")]),
        ("llama3_json", '{"name": "f", "parameters": {}} there', [CallBegin("f"), Arguments("{}"), Content("there")]),
        ("mistral", 'x[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}',
         [Content("x"), CallBegin("f"), Arguments('{"a": 1}')]),
        ("pythonic", "<|python_start|>[f(a=true, b=-1, c=('x',), d={'k': None})]<|python_end|>",
         [CallBegin("f"), Arguments('{"a": true, "b": -1, "c": ["x"], "d": {"k": null}}')]),
        ("pythonic", "[f(), g()]", [CallBegin("f"), Arguments("{}"), Content(", g()]")]),
        ("qwen3_coder", "a\n<function=f>\n<parameter=a>\n x\n\n</parameter>\n<parameter=b>1<parameter=a>2</function> b",
         [Content("a"), CallBegin("f"), Arguments('{"a": " x\\n", "b": 1}'), Content("\n b")]),
        # Cut off: what is whole is reported.
        ("qwen3_coder", "<tool_call><function=f><parameter=a>1</parameter><parameter=b>2",
         [CallBegin("f"), Arguments('{"a": 1')]),
        ("glm45", "a <tool_call>f\n<arg_key>a</arg_key>\n<arg_value> x</arg_value><arg_key>b</arg_key><arg_value>[1]"
         "</arg_value></tool_call>\nb", [Content("a"), CallBegin("f"), Arguments('{"a": " x", "b": [1]}'),
         Content(" \nb")]),
        ("glm45", "<tool_call>f<arg_key>a</arg_key><arg_value>1", [CallBegin("f"), Arguments("{")]),
        # Marks within strings of JSON end nothing; what looks like such a string may be none.
        ("glm45", '<tool_call>f<arg_key>a</arg_key><arg_value>["</arg_value>", "\\""]</arg_value></tool_call>',
         [CallBegin("f"), Arguments('{"a": ["</arg_value>", "\\""]}')]),
        ("glm45", '<tool_call>f<arg_key>a</arg_key><arg_value>["</arg_value><arg_key>b</arg_key><arg_value>"]!'
         "</arg_value></tool_call>", [CallBegin("f"), Arguments('{"a": "[\\"", "b": "\\"]!"}')]),
        ("qwen3_coder", '<function=f><parameter=a>\n{"b": "</parameter>"}\n</parameter></function></tool_call>',
         [CallBegin("f"), Arguments('{"a": {"b": "</parameter>"}}')]),
        ("pythonic", '[f(from="\\/", n-1={"a": true}, b=[True, None])]',
         [CallBegin("f"), Arguments('{"from": "/", "n-1": {"a": true}, "b": [true, null]}')]),
        ("glm45", "<tool_call>f</tool_call>", [CallBegin("f"), Arguments("{}")]),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
         "I look.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
         [Reasoning("Hm."), Content("I look."), CallBegin("f"), Arguments("{}")]),
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
         [Reasoning('<tool_call>{"name": "f"}</tool_call>'), CallBegin("f"), Arguments("{}")]),
    ],
)  # fmt: skip
def test_reasoning_comes_before_calls(text: str, prompt: str, events: list[Event]) -> None:
    form = AnswerFormat(TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
    for pieces in ([text], list(text)):
        assert parse(form, pieces, prompt) == events


def test_arguments_are_told_while_they_are_written() -> None:
    parser = FORMATS["hermes"].build_parser(ANY)
    assert parser.parse_piece('<tool_call>{"name": "f", "arguments": {"te') == [CallBegin("f"), Arguments('{"te')]
    assert parser.parse_piece('xt": "one') == [Arguments('xt": "one')]
    assert parser.parse_piece(' two"}}</tool_') == [Arguments(' two"}')]
    assert parser.parse_piece("call>") == parser.finish() == []


def test_without_tools_nothing_is_a_call() -> None:
    for name, call_text in (("hermes", '<tool_call>{"name": "f"}</tool_call>'), ("pythonic", "[f()]")):
        assert parse(FORMATS[name], [call_text], tools={}) == [Content(call_text)]


def test_text_is_told_at_once() -> None:
    parser = FORMATS["hermes"].build_parser(ANY)
    assert [parser.parse_piece(piece) for piece in ("one", " two", " <", "b", "\n")] == [
        [Content("one")], [Content(" two")], [], [Content(" <b")], [],
    ]  # fmt: skip


TYPED: dict[str, Any] = {
    "$defs": {"size": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "share": {"type": "number"},
        "on": {"type": "boolean"}, "list": {"type": "array"}, "size": {"$ref": "#/$defs/size"},
        "either": {"type": ["string", "null"]}, "kind": {"enum": ["1", "2"]}, "free": {},
        "loop": {"$ref": "#/properties/loop"}, "odd": {"type": [["x"]]},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "5", "5"), ("text", " null\n", " null\n"), ("count", "5", 5), ("count", " 5.0 ", 5),
        ("count", "five", "five"), ("count", "true", "true"), ("share", "0.5", 0.5), ("share", "NaN", "NaN"),
        ("on", "True", True), ("on", "false", False), ("list", "['a', 1]", ["a", 1]), ("list", '["a"]', ["a"]),
        ("size", "None", None), ("size", "7", 7), ("either", "null", None), ("either", "5", "5"), ("kind", "1", "1"),
        ("free", "[1]", [1]), ("free", "5", 5), ("free", "so", "so"), ("loop", "1", 1), ("odd", "1", 1),
        ("unknown", "{'a': 1}", {"a": 1}), ("count", "9" * 5000, "9" * 5000), ("list", "[" * 9999, "[" * 9999),
    ],
)  # fmt: skip
def test_plain_text_becomes_what_the_schema_says(name: str, text: str, value: Any) -> None:
    parsed_value = json.loads(json_of(text, ArgumentTypes(TYPED).of_argument(name)))
    assert parsed_value == value
    assert type(parsed_value) is type(value)
