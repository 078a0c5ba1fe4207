"""Schemas of arguments that are written one by one, as hostile clients send them: refused by name, and soon."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.server.parsers.calls import glm45, pythonic, qwen3_coder
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat
from paternoster_engine.server.parsers.schemas import MAX_DEPTH, MOST_PARTS, ArgumentTypes

FORMS = {"qwen3_coder": qwen3_coder.FORM, "glm45": glm45.FORM, "pythonic": pythonic.FORM}


def _grammar(form: str, schema: dict[str, Any]) -> list[str]:
    return list(FORMS[form].arguments("a", schema, {}))


def _types(schema: Any) -> frozenset[str]:
    return ArgumentTypes({}).types_of(schema)


def _of_one(schema: Any, **root: Any) -> dict[str, Any]:
    return {"properties": {"x": schema}, **root}


@pytest.mark.parametrize("form", ["qwen3_coder", "glm45"])
@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"minLength": "x"}, "'minLength' is 'x': must be a whole number from 0"),
        ({"minLength": -5}, "'minLength' is -5"),
        ({"maxLength": float("inf")}, "'maxLength' is inf"),
        ({"maxLength": 2.5}, "'maxLength' is 2.5"),
        ({"maxLength": [1]}, r"'maxLength' is \[1\]"),
        ({"pattern": 5}, "'pattern' is 5: must be a text"),
        ({"format": {}}, "'format' is {}: must be a text"),
        ({"allOf": 5, "minimum": 1}, "'allOf' is 5: must be a list"),
        ({"$ref": 5}, "5 leads to nothing"),
        ({"$ref": "#/properties/x"}, f"more than {MAX_DEPTH} times"),
    ],
)
def test_a_keyword_with_another_value(form: str, schema: dict[str, Any], named: str) -> None:
    with pytest.raises(GrammarError, match=named):
        _grammar(form, _of_one({"type": ["string", "integer"], **schema}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [1, None, ["a"], {}])
def test_a_required_argument_whose_name_is_no_text(form: str, name: Any) -> None:
    with pytest.raises(GrammarError, match=r"'required' has .*: must be names of arguments"):
        _grammar(form, {"required": [name]})


@pytest.mark.parametrize("form", FORMS)
def test_ten_thousand_arguments(form: str) -> None:
    with pytest.raises(GrammarError, match="more than 262144 bytes"):
        _grammar(form, {"properties": {f"x{i}": {"type": "string"} for i in range(10_000)}})


def test_options_within_options_take_no_power_of_two() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH - 2):
        schema = {"oneOf": [schema]}
    assert _grammar("glm45", _of_one(schema))


def test_options_that_share_what_follows_take_no_power_of_two() -> None:
    last = MAX_DEPTH // 2 - 1
    shared = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}", "minLength": length} for length in (i, i + 1)]}
        for i in range(last)
    }
    shared[f"d{last}"] = {"type": "string", "minLength": 1}
    with pytest.raises(GrammarError, match="bytes"):
        _grammar("glm45", _of_one({"$ref": "#/$defs/d0"}, **{"$defs": shared}))


def test_of_more_options_than_are_looked_at_any_type_is_told() -> None:
    options = [{"type": "null"}] * (MOST_PARTS + 1)
    assert _types({"anyOf": options[1:]}) == {"null"}
    assert "string" in _types({"anyOf": options})


@pytest.mark.parametrize("form", ["qwen3_coder", "glm45"])
def test_of_more_options_than_are_looked_at_no_grammar_is_made(form: str) -> None:
    with pytest.raises(GrammarError, match="its arguments have more than 65536 options"):
        _grammar(form, _of_one({"anyOf": [{}] * (MOST_PARTS + 1)}))


@pytest.mark.parametrize("form", ["qwen3_coder", "glm45"])
@pytest.mark.parametrize(
    "shared",
    [{"anyOf": [{"enum": [""] * 4096}] * 126}, {"anyOf": [{"const": i} for i in range(4000)]}, {"type": ["x"] * 9999}],
)
def test_schemas_that_arguments_share_are_looked_at_once(form: str, shared: dict[str, Any]) -> None:
    """Each time would be a thousand times a million values."""
    schema = {"type": "string", "anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]}
    properties = json.loads(json.dumps({f"x{i}": schema for i in range(1000)}))
    assert _grammar(form, {"properties": properties, "$defs": {"a": json.loads(json.dumps(shared))}})


@pytest.mark.parametrize("reference", ["#/$defs/" + "%61" * 700_000, "#/x/" + "0" * 5000])
def test_a_reference_of_thousands_of_characters_leads_to_nothing(reference: str) -> None:
    with pytest.raises(GrammarError, match="leads to nothing"):
        _grammar("glm45", _of_one({"$ref": reference}, x=[{}], **{"$defs": {"a" * 700_000: {}}}))


def test_types_of_a_list_of_countries() -> None:
    countries = [{"const": f"C{i}", "title": f"Country {i}"} for i in range(249)]
    assert _types({"anyOf": countries}) == {"string"}


@given(st.lists(st.sampled_from([None, True, 1, 0, 1.0, 2.5, "a", [], [1], {}]), min_size=1))
def test_types_of_an_enumeration(values: list[Any]) -> None:
    expected: set[str] = set()
    for value in values:
        kinds = {bool: ["boolean"], int: ["integer", "number"], float: ["number"], str: ["string"], list: ["array"]}
        expected.update(kinds.get(type(value), ["null" if value is None else "object"]))
        expected.update(["integer"] if value == 1.0 and not isinstance(value, bool) else [])
    assert _types({"enum": values}) == expected


def test_a_string_that_never_ends_is_looked_at_once_for_each_mark() -> None:
    """From each escaped quote a string that has no end could begin."""
    text = "[" + '"' + '\\"' * 30_000 + "</parameter>" * 40
    parser = AnswerFormat(TOOL_FORMATS["qwen3_coder"]).build_parser({"f": _of_one({"type": "array"})})
    events = [*parser.parse_piece(f"<tool_call><function=f><parameter=x>{text}"), *parser.finish()]
    assert events
