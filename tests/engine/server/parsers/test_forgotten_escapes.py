"""Arguments of calls are JSON, also where the model forgot to escape what it wrote within a string."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.server.parsers.answer_parser import EscapedStrings
from paternoster_engine.server.parsers.events import Arguments
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat

TOOLS: dict[str, dict[str, Any]] = {"run": {"properties": {"code": {"type": "string"}}}}
FORGOTTEN = ["\n", "\t", "\r", "\x00", "\x1b", "\\d", "\\p", "\\ ", "\\u12 ", "\\x41", "\\'"]
CALLS = {
    "hermes": '<tool_call>\n{"name": "run", "arguments": %s}\n</tool_call>',
    "llama3_json": '{"name": "run", "parameters": %s}',
    "mistral": "[TOOL_CALLS]run[ARGS]%s",
    "harmony": "<|channel|>commentary to=functions.run <|constrain|>json<|message|>%s<|call|>",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _in_pieces(text: str, cuts: list[int]) -> str:
    strings, places = EscapedStrings(), sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return "".join(strings.add_text(text[a:b]) for a, b in pairwise(places))


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.lists(st.integers(0, 10_000), max_size=6))
def test_json_stays_as_it_is(value: Any, ascii_only: bool, indent: int | None, cuts: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert _in_pieces(text, cuts) == text


@given(
    st.lists(st.sampled_from([*FORGOTTEN, "a", "é", '\\"', "\\\\", "\\n"]), max_size=12),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_what_was_forgotten_is_escaped(parts: list[str], cuts: list[int]) -> None:
    meant = "".join(part if part in FORGOTTEN else json.loads(f'"{part}"') for part in parts)
    assert json.loads(_in_pieces('{"code": "' + "".join(parts) + '"}', cuts)) == {"code": meant}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_arguments_of_each_format(name: str, forgotten: str) -> None:
    text = CALLS[name] % ('{"code": "a' + forgotten + 'b"}')
    form = AnswerFormat(TOOL_FORMATS[name], channels=name == "harmony")
    for pieces in ([text], list(text)):
        parser = form.build_parser(TOOLS)
        events = [*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()]
        arguments = "".join(event.text for event in events if isinstance(event, Arguments))
        assert json.loads(arguments) == {"code": f"a{forgotten}b"}
