"""What pydantic, zod and OpenAPI write compiles, and whatever is sampled is valid but for the keywords reported."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from llguidance import LLTokenizer
from tests.engine.sampling.grammars.schemas import pydantic_types
from tests.engine.sampling.grammars.schemas.schema_sampling import END, sampled
from tests.engine.sampling.grammars.schemas.written_schemas import ENFORCED, UNENFORCED

from paternoster_engine.sampling.grammars.compile_source import compile_source
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.schemas.rewriting import Unenforced
from paternoster_engine.sampling.grammars.source import GrammarSource

ZOD = json.loads((Path(__file__).parent / "zod.json").read_text(encoding="utf-8"))
"""Schemas of zod 4.6.7: ``z.toJSONSchema`` of types by name, for JSON schema, OpenAPI 3.0 and with references."""
NOT_OF_ZOD = {"isoDuration": ["properties.a.pattern"]}
"""Types with a look-ahead within that is not enforced; unknown formats have no effect besides."""
SEEDS = 3


@pytest.fixture(scope="module")
def vocabulary() -> LLTokenizer:
    """One token a byte, and one that ends an answer."""
    return LLTokenizer("byte")


def _compiled(vocabulary: LLTokenizer, schema: Mapping[str, Any]) -> tuple[Grammar, list[Unenforced]]:
    made = compile_source(vocabulary, GrammarSource("json", json.dumps(schema)), frozenset())
    return Grammar(vocabulary, made.text), list(made.unenforced)


def _paths(keywords: list[Unenforced]) -> list[str]:
    return sorted(".".join((*unenforced_keyword.path, unenforced_keyword.keyword)) for unenforced_keyword in keywords)


def _without(schema: Mapping[str, Any], keywords: list[Unenforced]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(schema))
    for unenforced_keyword in keywords:
        part: Any = made
        for step in unenforced_keyword.path:
            part = part[int(step)] if isinstance(part, list) else part[step]
        part.pop(unenforced_keyword.keyword)
    return made


def _check(vocabulary: LLTokenizer, schema: Mapping[str, Any], draft: Callable[..., Any]) -> list[Unenforced]:
    grammar, unenforced = _compiled(vocabulary, schema)
    validator = draft(_without(schema, unenforced), validate_formats=True)
    answers = [answer for seed in range(SEEDS) if (answer := sampled(grammar, seed)) is not None]
    # A number with a long exponent is infinite to Python alone.
    read = [value for value in map(json.loads, answers) if "Infinity" not in json.dumps(value)]
    wrong = [value for value in read if not validator.is_valid(value)]
    assert not wrong, schema
    return unenforced


@pytest.mark.parametrize(("name", "schema"), pydantic_types.schemas().items())
def test_what_pydantic_writes_is_enforced(vocabulary: LLTokenizer, name: str, schema: dict[str, Any]) -> None:
    unenforced = _check(vocabulary, schema, jsonschema_rs.Draft202012Validator)
    expected = {"Pattern": ["properties.a.format"], "set[str]": ["properties.a.uniqueItems"],
                "frozenset[int]": ["properties.a.uniqueItems"]}  # fmt: skip
    assert _paths(unenforced) == expected.get(name, [])


@pytest.mark.parametrize(("name", "schema"), ZOD.items())
def test_what_zod_writes_is_enforced(vocabulary: LLTokenizer, name: str, schema: dict[str, Any]) -> None:
    draft = jsonschema_rs.Draft4Validator if "openapi-3.0" in name else jsonschema_rs.Draft202012Validator
    # By OpenAPI null is of it; its expression of e-mail addresses is none to the validator.
    if name in ("nul (openapi-3.0)", "emailRfc"):
        unenforced = _compiled(vocabulary, schema)[1]
    else:
        unenforced = _check(vocabulary, schema, draft)
    assert _paths(
        [unenforced_keyword for unenforced_keyword in unenforced if unenforced_keyword.asserts]
    ) == NOT_OF_ZOD.get(name, [])


@pytest.mark.parametrize("name", ENFORCED)
def test_what_can_be_said_in_other_words_is_enforced(vocabulary: LLTokenizer, name: str) -> None:
    assert _check(vocabulary, ENFORCED[name], jsonschema_rs.Draft202012Validator) == []


@pytest.mark.parametrize("name", UNENFORCED)
def test_what_cannot_be_enforced_is_told(vocabulary: LLTokenizer, name: str) -> None:
    schema, paths = UNENFORCED[name]
    assert _paths(_check(vocabulary, schema, jsonschema_rs.Draft202012Validator)) == paths


def _accepts(vocabulary: LLTokenizer, schema: Mapping[str, Any], answer: str) -> bool:
    grammar, _ = _compiled(vocabulary, schema)
    matcher = grammar.start_matcher()
    tokens = list(answer.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("name", "allowed", "forbidden"),
    [
        ("not one of texts", ['"b"', '"bcd"'], ['"a"', '"bc"']),
        ("not of a type", ['"b"'], ["null"]),
        ("byte", ['"aGk="', '""'], ['"a"']),
        ("int32", ["2147483647"], ["2147483648"]),
        ("propertyNames of a pattern", ['{"abc":1}'], ['{"abcd":1}', '{"A":1}']),
        ("contains of anything", ["[1,2]", "[1,2,3]"], ["[1]", "[1,2,3,4]"]),
        ("unevaluatedItems", ['["a",1]'], ['["a",1,2]']),
    ],
)
def test_of_one_property(vocabulary: LLTokenizer, name: str, allowed: list[str], forbidden: list[str]) -> None:
    for value in allowed:
        assert _accepts(vocabulary, ENFORCED[name], f'{{"a":{value}}}'), value
    for value in forbidden:
        assert not _accepts(vocabulary, ENFORCED[name], f'{{"a":{value}}}'), value


@pytest.mark.parametrize(
    ("name", "allowed", "forbidden"),
    [
        ("if of a kind", ['{"kind":"a","x":1}', '{"kind":"b","y":""}'], ['{"kind":"a","y":""}', '{"kind":"b","x":1}']),
        ("two ifs", ['{"kind":"c"}', '{"kind":"b","y":""}'], ['{"kind":"a"}', '{"kind":"b"}']),
        ("dependentRequired", ["{}", '{"zip":1}', '{"card":"","street":"","zip":1}'], ['{"card":"","zip":1}']),
        ("unevaluatedProperties", ['{"a":1}', '{"a":1,"b":""}'], ['{"a":1,"c":1}']),
        ("unevaluatedProperties beside allOf", ['{"a":1,"b":""}', '{"b":""}'], ['{"a":1}', '{"b":"","c":1}']),
        ("not with a property", ['{"b":""}'], ['{"a":""}']),
    ],
)
def test_of_the_whole(vocabulary: LLTokenizer, name: str, allowed: list[str], forbidden: list[str]) -> None:
    for answer in allowed:
        assert _accepts(vocabulary, ENFORCED[name], answer), answer
    for answer in forbidden:
        assert not _accepts(vocabulary, ENFORCED[name], answer), answer


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"not": {}}, "allows no answer|schema is false|Unsatisfiable"),
        ({"$ref": "https://example.com/x"}, "leads to nothing"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"type": "string", "not": {"type": "string"}}, "Unsatisfiable|no answer"),
    ],
)
def test_what_no_answer_is_of_is_refused(vocabulary: LLTokenizer, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        _compiled(vocabulary, schema)


def test_end_is_a_token_of_its_own(vocabulary: LLTokenizer) -> None:
    assert vocabulary.eos_token == END
