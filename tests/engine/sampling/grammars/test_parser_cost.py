"""Grammars of which one token would hold up every request are found by their text."""

import json
from typing import Any

import pytest

from paternoster_engine.sampling.grammars.limits import MAX_PARSER_COST
from paternoster_engine.sampling.grammars.parser_cost import ParserCost
from paternoster_engine.sampling.grammars.source import GrammarSource, Kind, to_grammar


def work(kind: Kind, source: Any) -> int:
    return ParserCost.estimate_items(
        to_grammar(GrammarSource(kind, source if isinstance(source, str) else json.dumps(source)), frozenset())
    )


def repeated(ways: int, before: str = "", between: str = "") -> str:
    """A text, and then a rule that is made of itself in ``ways`` equal ways."""
    return f'start: "Hello world" {before} r\nr: ' + f" {between}| ".join(["r r"] * ways) + ' | "a"\n'


def leading_to_itself(ways: int) -> dict[str, Any]:
    rule = {"anyOf": [*[{"$ref": "#/$defs/d"}] * ways, {"type": "array", "items": {"$ref": "#/$defs/d"}}]}
    return {"$defs": {"d": rule}, "type": "object", "properties": {"in": {"$ref": "#/$defs/d"}}, "required": ["in"]}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("grammar", repeated(400)),
        ("grammar", repeated(400, before=r'/a\/"/')),
        ("grammar", repeated(400, before='"//"')),
        ("grammar", repeated(400, between="// one\n")),
        ("grammar", repeated(400).replace("r: ", "?r.1: ").replace("|", "\n|")),
        ("grammar", "root ::= r\nr ::= " + " | ".join(["r r"] * 400) + ' | "a"'),
        ("grammar", f'start: "x" %json {json.dumps(leading_to_itself(600))}'),
        ("grammar", "start: r\n" + "".join(f"r: r r{i}\nr{i}: r\n" for i in range(400)) + 'r: "a"\n'),
        ("json", leading_to_itself(600)),
        ("json", {"$defs": {"d": {"allOf": [{"anyOf": [True] * 90}] * 3}}, "items": [{"$ref": "#/$defs/d"}] * 60}),
    ],
)
def test_rules_that_end_in_many_ways_at_many_places_cost_too_much(kind: Kind, source: Any) -> None:
    assert work(kind, source) > MAX_PARSER_COST


EXPRESSIONS = """
start: (line NEWLINE)*
line: NAME "=" sum | sum
?sum: product | sum "+" product | sum "-" product
?product: atom | product "*" atom | product "/" atom
atom: NUMBER | "-" atom | NAME | "(" sum ")" | NAME "(" (sum ("," sum)*)? ")"
NAME: /[a-z]+/
NUMBER: /[0-9]+/
NEWLINE: "\\n"
"""
FIELDS = {f"field_{i}": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/kind"}, {"type": "null"}]} for i in range(300)}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("grammar", EXPRESSIONS),
        ("json", {"$defs": {"kind": {"enum": ["a", "b"]}}, "type": "object", "properties": FIELDS}),
        ("json", {"$defs": {"node": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/node"}}] * 20}}}),
        ("choice", [f"choice {i}" for i in range(4000)]),
        ("regex", "(a|b)*a(a|b){500}"),
    ],
)
def test_others_cost_far_less(kind: Kind, source: Any) -> None:
    assert work(kind, source) < MAX_PARSER_COST / 20


def test_what_is_no_grammar_raises_value_error_at_most() -> None:
    for text in ('start: %json {"a": ', "start: r\nr", ":::", '{"grammars": []}', "/", '"', "r: r" * 9):
        try:
            ParserCost.estimate_items(text)
        except ValueError:
            continue
