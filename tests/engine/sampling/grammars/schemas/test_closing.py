"""Objects have the names of their schema alone, unless it says something of others; nothing that it names is lost."""

import json
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tests.engine.sampling.grammars.schemas.schema_sampling import sampled

from paternoster_engine.sampling.grammars.compile_source import compile_source
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.schemas.closing import MOST_NAMES
from paternoster_engine.sampling.grammars.schemas.enforceable import make_enforceable
from paternoster_engine.sampling.grammars.source import GrammarSource, most_items

BYTES = LLTokenizer("byte")
INT, STR = {"type": "integer"}, {"type": "string"}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


def _compiled(schema: Mapping[str, Any]) -> Grammar:
    source = GrammarSource("json", json.dumps(schema))
    made = compile_source(BYTES, source, frozenset())
    assert made.unenforced == ()
    return Grammar(BYTES, made.text, most_items(source))


def _accepts(grammar: Grammar, document: Any) -> bool:
    matcher = grammar.start_matcher()
    tokens = list(json.dumps(document).encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


A, B = _object(a=INT), _object(b=INT)
CAT, DOG = _object("kind", kind={"const": "cat"}, lives=INT), _object("kind", kind={"const": "dog"}, tricks=INT)
TREE = {"allOf": [{"$ref": "#/$defs/A"}, _object(below={"type": "array", "items": {"$ref": "#/$defs/T"}})]}
CLOSED: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "properties": (A, [{}, {"a": 1}], [{"b": 2}, {"a": 1, "b": 2}]),
    "no type": ({"properties": {"a": INT}}, [5, {"a": 1}], [{"a": 1, "b": 2}]),
    "a required name beside": ({**A, "required": ["b"]}, [{"a": 1, "b": [2]}, {"b": 2}], [{"a": 1}, {"b": 1, "c": 1}]),
    "one property or more": ({**_object(a=INT, b=INT), "minProperties": 1}, [{"b": 1}], [{}, {"c": 1}]),
    "within properties": (_object(x=A), [{"x": {"a": 1}}], [{"x": {"b": 1}}]),
    "within items": ({"type": "array", "items": A}, [[{"a": 1}, {}]], [[{"a": 1, "b": 1}]]),
    "within other properties": ({"type": "object", "additionalProperties": A}, [{"x": {"a": 1}}], [{"x": {"b": 1}}]),
    "allOf": ({"allOf": [A, B]}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{"c": 1}, {"a": 1, "c": 1}]),
    "allOf of one": ({"allOf": [{"$ref": "#/$defs/A"}], "default": {}, "$defs": {"A": A}}, [{"a": 1}], [{"c": 1}]),
    "a base": ({"allOf": [{"$ref": "#/$defs/A"}], "properties": {"b": INT}, "$defs": {"A": A}},
               [{"a": 1, "b": 1}, {"b": 1}], [{"c": 1}]),
    "a base that stands alone too": (
        {**_object(x={"allOf": [{"$ref": "#/$defs/A"}, B]}, y={"$ref": "#/$defs/A"}), "$defs": {"A": A}},
        [{"x": {"a": 1, "b": 1}, "y": {"a": 1}}], [{"y": {"a": 1, "b": 1}}, {"x": {"a": 1, "c": 2}}],
    ),
    "beside a reference": (_object(x={"$ref": "#/$defs/A", **B}) | {"$defs": {"A": A}},
                           [{"x": {"a": 1, "b": 1}}], [{"x": {"c": 1}}]),
    "optional": (_object(x={"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}) | {"$defs": {"A": A}},
                 [{"x": None}, {"x": {"a": 1}}], [{"x": {"a": 1, "b": 1}}]),
    "options apart": ({"anyOf": [CAT, DOG]}, [{"kind": "cat", "lives": 9}, {"kind": "dog", "tricks": 1}],
                      [{"kind": "cat", "tricks": 1}, {"kind": "dog", "name": 1}]),
    "options that meet": ({"anyOf": [A, B]}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{"c": 1}, {"a": 1, "c": 1}]),
    "oneOf by a tag": (
        {"oneOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}], "discriminator": {"propertyName": "kind"},
         "$defs": {"C": {**CAT, "required": []}, "D": {**DOG, "required": []}}},
        [{"kind": "cat", "lives": 9}, {"kind": "dog"}], [{"lives": 9}, {"kind": "cat", "tricks": 1}],
    ),
    "one of two is required": (
        {**_object(a=INT, b=INT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{}, {"a": 1, "c": 1}],
    ),
    "options add names": ({**A, "anyOf": [{"required": ["a"]}, B]}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1, "c": 1}]),
    "if": (
        {**_object(k=STR), "if": {"properties": {"k": {"const": "a"}}}, "then": B, "else": _object(c=INT)},
        [{"k": "a", "b": 1}, {"k": "z", "c": 1}], [{"k": "a", "d": 1}],
    ),
    "dependentRequired": ({**A, "dependentRequired": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}], [{"a": 1}, {"c": 1}]),
    "dependentSchemas": ({**A, "dependentSchemas": {"a": {"properties": {"b": INT}}}}, [{"a": 1, "b": 1}], [{"c": 1}]),
    "dependencies": ({**A, "dependencies": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}], [{"a": 1}, {"c": 1}]),
    "a list of itself": ({"$ref": "#/$defs/T", "$defs": {"A": A, "T": TREE}}, [{"a": 1, "below": [{"a": 2}]}],
                         [{"b": 1}, {"below": [{"b": 1}]}]),
    "the root within itself": (_object(a=INT, n={"$ref": "#"}), [{"n": {"a": 1}}], [{"n": {"b": 1}}, {"b": 1}]),
    "dynamicRef": (
        {"$dynamicAnchor": "n", **_object(a=INT, c={"$dynamicRef": "#n"})},
        [{"a": 1, "c": {"a": 1, "c": {}}}], [{"b": 1}, {"c": {"d": 1}}],
    ),
    "not required": ({**_object(a=INT, b=INT), "not": {"required": ["a"]}}, [{"b": 1}], [{"a": 1}, {"c": 1}]),
}  # fmt: skip
OPEN: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "no properties": ({"type": "object"}, [{"a": 1}]),
    "empty properties": (_object(), [{"a": 1}]),
    "required alone": ({"type": "object", "required": ["a"]}, [{"a": 1, "b": 2}]),
    "additionalProperties": ({**A, "additionalProperties": True}, [{"a": 1, "b": 2}]),
    "additionalProperties of a schema": ({**A, "additionalProperties": INT}, [{"a": 1, "b": 2}]),
    "unevaluatedProperties": ({"allOf": [A], "unevaluatedProperties": True}, [{"a": 1, "b": 2}]),
    "patternProperties": ({**A, "patternProperties": {"^x": INT}}, [{"a": 1, "x1": 2, "b": 3}]),
    "propertyNames": ({**A, "propertyNames": {"enum": ["a", "b"]}}, [{"a": 1, "b": 2}]),
    "whole objects": ({**A, "enum": [{"a": 1, "b": 2}]}, [{"a": 1, "b": 2}]),
    "a part that says so": ({"allOf": [A, {"additionalProperties": True}]}, [{"a": 1, "b": 2}]),
    "an option that says so": ({"anyOf": [A, {**B, "additionalProperties": True}]}, [{"b": 1, "c": 2}]),
}


@pytest.mark.parametrize("name", CLOSED)
def test_no_other_names(name: str) -> None:
    schema, allowed, forbidden = CLOSED[name]
    grammar, validator = _compiled(schema), jsonschema_rs.Draft202012Validator(schema)
    for document in allowed:
        assert _accepts(grammar, document), document
        if name != "dependencies":
            assert validator.is_valid(document), document
    for document in forbidden:
        assert not _accepts(grammar, document), document


@pytest.mark.parametrize("name", OPEN)
def test_other_names_where_the_schema_says_so(name: str) -> None:
    schema, allowed = OPEN[name]
    grammar, validator = _compiled(schema), jsonschema_rs.Draft202012Validator(schema)
    for document in allowed:
        assert validator.is_valid(document), document
        assert _accepts(grammar, document), document


def test_more_properties_than_are_named_leave_it_open() -> None:
    schema = {**A, "minProperties": 2}
    made = compile_source(BYTES, GrammarSource("json", json.dumps(schema)), frozenset())
    assert [keyword.keyword for keyword in made.unenforced] == ["minProperties"]
    assert _accepts(Grammar(BYTES, made.text), {"a": 1, "b": 2})


def test_options_with_too_many_names_together_stay_open() -> None:
    """Each option is given all names, of which a grammar has room for some hundreds."""
    options = [_object(**{f"{letter}{i}": INT for i in range(MOST_NAMES // 8 // 8 + 1)}) for letter in "abcdefgh"]
    grammar = _compiled({"anyOf": options})
    assert _accepts(grammar, {"a1": 1})
    assert _accepts(grammar, {"a1": 1, "other": 1})


def test_objects_of_a_large_schema_are_closed_to_the_last() -> None:
    made = make_enforceable({"type": "array", "prefixItems": [_object(**{f"p{i}": INT}) for i in range(2_500)]})
    assert all(part["additionalProperties"] is False for part in made.schema["prefixItems"])


NAMES = "abcd"
LEAVES = st.sampled_from([INT, STR, {"type": "boolean"}])


@st.composite
def composites(draw: st.DrawFn) -> dict[str, Any]:
    """Schemas of one object, put together from parts that each name some of four properties."""

    def draw_part(depth: int) -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        # Each name has one type throughout, so that parts do not contradict each other.
        part = _object(*draw(st.sets(st.sampled_from(names), max_size=1) if names else st.just(())),
                       **{name: TYPES[name] for name in names})  # fmt: skip
        if depth and draw(st.booleans()):
            keyword = draw(st.sampled_from(["allOf", "anyOf"]))
            part[keyword] = [draw_part(depth - 1) for _ in range(draw(st.integers(1, 2)))]
        return {"$ref": "#/$defs/base"} | part if depth and draw(st.integers(0, 4)) == 0 else part

    return {**draw_part(2), "$defs": {"base": draw_part(0)}}


TYPES = {"a": INT, "b": STR, "c": {"type": "boolean"}, "d": {"type": "array", "items": _object(a=INT)}}
VALUES = {"a": 1, "b": "x", "c": True, "d": [{"a": 1}]}


def _names_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    parts = [*schema.get("allOf", []), *schema.get("anyOf", [])]
    parts += [root["$defs"]["base"]] if "$ref" in schema else []
    return {*schema["properties"]}.union(*(_names_of(part, root) for part in parts))


@settings(max_examples=60, deadline=None)
@given(composites(), st.integers(0, 2**32))
def test_of_drawn_composites(schema: dict[str, Any], seed: int) -> None:
    """Documents that may be written are those of the schema with its names alone."""
    grammar, validator = _compiled(schema), jsonschema_rs.Draft202012Validator(schema)
    names = _names_of(schema, schema)
    for document in ({name: VALUES[name] for i, name in enumerate(NAMES) if bits >> i & 1} for bits in range(16)):
        if validator.is_valid(document) and (not names or document.keys() <= names):
            assert any(
                _accepts(grammar, {name: document[name] for name in order}) for order in permutations(document)
            ), (schema, document)
    for shift in range(3):
        written = sampled(grammar, seed + shift)
        if written is not None:
            value = json.loads(written)
            assert validator.is_valid(value), (schema, written)
            assert not names or value.keys() <= names, (schema, written)
