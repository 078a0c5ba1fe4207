"""Texts among arguments come while they are written, in every format, and say what the whole parse says."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paternoster_engine.server.parsers.arguments import named
from paternoster_engine.server.parsers.calls.pythonic import MAX_VALUE
from paternoster_engine.server.parsers.calls.strings import REPLACEMENT, pass_string
from paternoster_engine.server.parsers.calls.typed_values import _BEGINNINGS, json_of
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Read, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import ArgumentTypes

LONG = "".join(f'line {i} of "a" <file> \\ é\n' for i in range(40))
QUOTED = json.dumps(LONG, ensure_ascii=False)
WRITTEN = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": QUOTED}}\n</tool_call>',
    "hermes, arguments as a text": '<tool_call>\n{"name": "f", "arguments": TWICE}\n</tool_call>',
    "llama3_json": '{"name": "f", "parameters": {"a": QUOTED}}',
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": QUOTED}}]',
    "mistral, named": '[TOOL_CALLS]f[ARGS]{"a": QUOTED}',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\nLONG\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>LONG</arg_value>\n</tool_call>",
    "pythonic": "[f(a=QUOTED)]",
    "pythonic, as Python writes it": "[f(a=REPR)]",
    "pythonic, in three quotes": '[f(a="""RAW""")]',
    "harmony": '<|channel|>commentary to=functions.f<|message|>{"a": QUOTED}<|call|>',
}
TEXT: dict[str, Any] = {"type": "string"}


def _filled(written: str) -> str:
    twice = json.dumps(json.dumps({"a": LONG}))
    raw = LONG.replace("\\", "\\\\")
    for name, value in (("TWICE", twice), ("QUOTED", QUOTED), ("REPR", repr(LONG)), ("RAW", raw), ("LONG", LONG)):
        written = written.replace(name, value)
    return written


def test_every_format_is_here() -> None:
    assert {name.partition(",")[0] for name in WRITTEN} == {*TOOL_FORMATS}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {"anyOf": [TEXT, {"type": "null"}]},
        {"type": ["string", "integer"]},
        {"anyOf": [{"type": "array"}, TEXT]},
        {},
    ],
    ids=["text", "or null", "or integer", "or list", "anything"],
)
def test_a_long_text_comes_in_many_pieces(name: str, schema: dict[str, Any]) -> None:
    form = AnswerFormat(TOOL_FORMATS[name.partition(",")[0]], channels=name == "harmony")
    parser = form.build_parser({"f": {"properties": {"a": schema}}})
    text = _filled(WRITTEN[name])
    pieces = [parser.parse_piece(text[start : start + 4]) for start in range(0, len(text), 4)]
    pieces_of_arguments = [
        event.text for events in [*pieces, parser.finish()] for event in events if isinstance(event, Arguments)
    ]
    assert json.loads("".join(pieces_of_arguments)) == {"a": LONG}
    assert len(pieces_of_arguments) > len(LONG) / 8
    assert not any(isinstance(event, Content) for events in pieces for event in events)


PYTHON: dict[str, Any] = {"a": TEXT, "b": {"type": "integer"}}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[f(a='x', b=2)]", '{"a": "x", "b": 2}'),
        ("[f(b=2, a='x')]", '{"b": 2, "a": "x"}'),
        ("[f(a='x' 'y'\n\"z\")]", '{"a": "xyz"}'),
        ("[f(a='', b=1)]", '{"a": "", "b": 1}'),
        ("[f(a='''x'y''', a='z')]", '{"a": "x\'y"}'),
        ("[f(a=r'\\d')]", '{"a": "\\\\d"}'),
        ("[f(a='\\x41\\101\\N{BULLET}\\q\\\n')]", '{"a": "AA•\\\\q"}'),
        ("[f(a='\\ud83d\\ude00 \\ud800 \\udc00')]", f'{{"a": "😀 {REPLACEMENT} {REPLACEMENT}"}}'),
        ("[f(a='one\ntwo')]", '{"a": "one\\ntwo"}'),
        # What begins as an argument and is none comes as it is: it is no JSON, as where a model writes none.
        ("[f(a='x'.upper(), b=2)]", '{"a": "x".upper(), "b": 2}'),
        ("[f(a='x', b=g())]", '{"a": "x", "b": g()}'),
        # Cut off.
        ("[f(a='x\\", '{"a": "x'),
        ("[f(a='x', b=1", '{"a": "x"'),
        ("[f(a='''x''", '{"a": "x'),
    ],
)  # fmt: skip
def test_python(text: str, arguments: str) -> None:
    for pieces in ([text], list(text)):
        parser = AnswerFormat(TOOL_FORMATS["pythonic"]).build_parser({"f": {"properties": PYTHON}})
        events = [*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()]
        assert events[0] == CallBegin("f")
        assert "".join(event.text for event in events[1:] if isinstance(event, Arguments)) == arguments


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\\'\"\n/😀nux0")), st.integers(1, 5))
@example("\ufeff\u2028", 1)
def test_strings_say_what_they_were_written_for(text: str, size: int) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    for written, quote in (
        (json.dumps(text), '"'), (json.dumps(text, ensure_ascii=False), '"'), (repr(text), repr(text)[0]),
        (f'"""{quoted}"""', '"""'), (json.dumps(text).replace("/", "\\/"), '"'),
    ):  # fmt: skip
        assert _decoded(written[len(quote) :] + "rest", quote, size) == (text, "rest")


def _decoded(written: str, quote: str, size: int) -> tuple[str, str]:
    """What a string says, and what is held behind it."""
    reader, arguments = Reader(), []

    def read() -> Read[None]:
        assert (yield from pass_string(reader, Content, quote))
        yield from reader.pass_rest(Arguments)

    events = read()
    rest = ""
    for start in range(0, len(written), size):
        reader.held += written[start : start + size]
        for event in events:
            if event is None:
                break
            if isinstance(event, Content):
                arguments.append(event.text)
            elif isinstance(event, Arguments):
                rest += event.text
    return "".join(arguments), rest


KINDS = st.sets(st.sampled_from(["string", "null", "boolean", "integer", "number", "array", "object"]), min_size=1)
VALUES = st.sampled_from(
    ["null", "None", "nul", "nullable", "true", "True", "tru", "false!", "5", "-5", "-", "5.0", "5 apples", "[1]", "[",
     "{}", "{'a': 1}", "{x", "", " ", "\n", "\n\n", " 5\n", "\n\nnull\n", "text", "1e5", "-x", "é", "\x1c5", '"5"',
     "nan"]
)  # fmt: skip


@given(KINDS, st.lists(VALUES, min_size=1, max_size=2).map("".join), st.sampled_from(["qwen3_coder", "glm45"]))
def test_values_are_of_their_types_wherever_they_are_told(kinds: set[str], value: str, name: str) -> None:
    """A text that streams before its end is what it would be with its end at hand."""
    text = (
        f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>" if name == "glm45"
        else f"<function=f><parameter=a>\n{value}\n</parameter></function>"
    )  # fmt: skip
    schema = {"properties": {"a": {"type": sorted(kinds)}}}
    expected = json.loads(json_of(value, ArgumentTypes(schema).of_argument("a")))
    for pieces in ([text], list(text)):
        parser = AnswerFormat(TOOL_FORMATS[name]).build_parser({"f": schema})
        events = [*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()]
        parsed_value = json.loads("".join(event.text for event in events if isinstance(event, Arguments)))["a"]
        assert (parsed_value, type(parsed_value)) == (expected, type(expected))


def test_the_grammar_forbids_texts_the_same_beginnings() -> None:
    for name, begins in _BEGINNINGS.items():
        pattern = re.compile(named._BEGINNINGS[name])
        assert all(pattern.fullmatch(begin) for begin in begins)
        others = [other for key in _BEGINNINGS for other in _BEGINNINGS[key] if not other.startswith(begins)]
        assert not any(map(pattern.match, others))


def test_python_of_a_value_that_is_too_long() -> None:
    long = "1" * (MAX_VALUE + 1)
    for text, events in (
        (f"[f(a='x', b={long})]", [CallBegin("f"), Arguments('{"a": "x"')]),
        (f"[f(b={long})]", [Content(f"[f(b={long})]")]),
    ):
        parser = AnswerFormat(TOOL_FORMATS["pythonic"]).build_parser({"f": {"properties": PYTHON}})
        assert join_events([*parser.parse_piece(text), *parser.finish()])[:2] == events
