"""A model that repeats a digit comes to an end, and every number that programs write is still allowed."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.grammars.compile_source import compile_source
from paternoster_engine.sampling.grammars.compiler import GrammarCompiler
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.json_schema import with_options
from paternoster_engine.sampling.grammars.number_bound import MOST_DIGITS, MOST_EXPONENT, NumberBound
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary

DIGITS = [f"{number}".encode() for number in range(10)]
LONG_DIGITS = [digit * count for digit in DIGITS for count in (2, 3)]
TOKENS = [*(bytes([byte]) for byte in range(256)), *LONG_DIGITS, b"12", b"345", b',"', b'":', b"0.", b"<end>"]
END = len(TOKENS) - 1
VOCABULARY = Vocabulary(TOKENS, [END], [END])
MOST_TOKENS = 400
LONGEST = MOST_DIGITS * 2 + MOST_EXPONENT + 4
"""Characters of a number: two signs, a point and an ``e`` besides."""
INTEGER, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    """Bytes, and tokens of two and three digits as Llama's and Qwen's."""
    return VOCABULARY.build_tokenizer()


def _grammar(tokenizer: LLTokenizer, schema: Mapping[str, Any]) -> Grammar:
    made = compile_source(tokenizer, GrammarSource("json", json.dumps(schema)), frozenset())
    return Grammar(tokenizer, made.text, numbers=NumberBound(TOKENS))


def _request(grammar: Grammar, **params: Any) -> Request:
    spec = RequestSpec("r", [1], SamplingParams(max_tokens=MOST_TOKENS, **params), eos_token_ids=(END,))
    return Request(spec, matcher=grammar.begin_output())


def _allowed(request: Request | ProposedRow) -> set[int]:
    assert request.matcher is not None
    mask = request.matcher.allowed_mask(request)
    assert mask is not None, request.matcher.fault
    return {token for token in range(len(TOKENS)) if mask[token // 8] >> token % 8 & 1}


def _written(grammar: Grammar, choose: Callable[[set[int]], int], **params: Any) -> str:
    """What a model writes that chooses among the allowed tokens."""
    request = _request(grammar, **params)
    while len(request.output) < MOST_TOKENS:
        token = choose(_allowed(request))
        if token == END:
            return b"".join(TOKENS[token] for token in request.output).decode()
        request.output.append(token)
    pytest.fail(f"no end: {b''.join(TOKENS[token] for token in request.output)!r}")


def _follows(grammar: Grammar, text: str) -> bool:
    """Whether the masks let a model write ``text`` and end there. A text that is forced is spelled in one way only."""
    request, left = _request(grammar), text.encode()
    while left:
        fitting = [token for token in _allowed(request) if TOKENS[token] and left.startswith(TOKENS[token])]
        if not fitting:
            return False
        request.output.append(max(fitting, key=lambda token: len(TOKENS[token])))
        left = left[len(TOKENS[request.output[-1]]) :]
    return END in _allowed(request)


def _preferring(texts: Sequence[bytes]) -> Callable[[set[int]], int]:
    """Choose the first of ``texts`` that is allowed; else the end, what closes, or any token."""
    wanted = [TOKENS.index(text) for text in (*texts, b"<end>", b"}", b"]", b'"', b":", b",")]
    return lambda allowed: next((token for token in wanted if token in allowed), min(allowed))


@pytest.mark.parametrize("digit", [b"0", b"1", b"00", b"111", b"999", b"345"])
@pytest.mark.parametrize(
    "schema",
    [
        {},
        INTEGER,
        NUMBER,
        {"type": "integer", "minimum": 0},
        {"type": "number", "exclusiveMaximum": 0},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "integer", "multipleOf": 10},
        {"type": "number", "multipleOf": 0.25},
        {"type": "integer", "multipleOf": 1000},
        {"type": ["number", "null"]},
        {"anyOf": [STRING, INTEGER]},
        {"type": "object", "properties": {"a": NUMBER, "b": INTEGER}, "required": ["a", "b"]},
        {"type": "array", "items": NUMBER, "maxItems": 2},
        {"type": "object", "properties": {"a": {"type": "string", "format": "decimal"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "format": "duration"}}, "required": ["a"]},
    ],
    ids=json.dumps,
)
def test_a_digit_that_is_repeated_comes_to_an_end(tokenizer: LLTokenizer, schema: dict[str, Any], digit: bytes) -> None:
    grammar = _grammar(tokenizer, schema)
    for then in ((), (b"-",), (b".", b"e", b"-"), (b"e", b"+")):
        written = _written(grammar, _preferring((digit, digit[:1], *then)))
        assert len(written) <= 2 * (LONGEST + 8), written
        value = json.loads(written)
        assert "Infinity" in json.dumps(value) or jsonschema_rs.Draft202012Validator(schema).is_valid(value), written


@pytest.mark.parametrize("fields", [{"min_tokens": MOST_TOKENS - 1}, {"ignore_eos": True}])
def test_an_answer_that_must_go_on_ends_where_its_number_does(tokenizer: LLTokenizer, fields: dict[str, Any]) -> None:
    assert _written(_grammar(tokenizer, INTEGER), _preferring([b"1"]), **fields) == "1" * MOST_DIGITS


def test_proposed_tokens_are_bounded_as_well(tokenizer: LLTokenizer) -> None:
    request = _request(_grammar(tokenizer, INTEGER))
    request.output.extend(b"1" * (MOST_DIGITS - 2))
    assert TOKENS.index(b"111") not in _allowed(request)
    assert _allowed(ProposedRow(request, [TOKENS.index(b"11")])) == {END}


def _spellings(number: float) -> list[str]:
    """How Python, C, JavaScript and SQL write it."""
    exact = f"{Decimal(repr(number)):f}"
    whole, _, fraction = exact.lstrip("-").partition(".")
    fits = len(whole) <= MOST_DIGITS and len(fraction) <= MOST_DIGITS
    return [json.dumps(number), f"{number:.16e}", f"{number:.17g}", *([exact] if fits else [])]


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**128), 2**128)))
def test_every_number_that_programs_write_is_allowed(number: float) -> None:
    texts = [str(number)] if isinstance(number, int) else _spellings(number)
    for text in texts:
        assert _follows(ANY_NUMBER, text), text
    if isinstance(number, int):
        assert _follows(WHOLE, str(number))
    document = json.dumps({"a": [number, {"b": number}], "c": f"{number}"})
    assert _follows(ANYTHING, document), document


ANY_NUMBER, WHOLE, ANYTHING = (_grammar(VOCABULARY.build_tokenizer(), schema) for schema in (NUMBER, INTEGER, {}))
BOUNDS = st.integers(-(10**20), 10**20) | st.floats(-1e12, 1e12).map(lambda number: round(number, 3))


@st.composite
def number_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Numbers with bounds and multiples, alone or within an object or a list."""
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    least, most = sorted([draw(BOUNDS), draw(BOUNDS)])
    schema |= draw(st.sampled_from([{}, {"minimum": least}, {"maximum": most}, {"exclusiveMinimum": least}]))
    schema |= draw(st.sampled_from([{}, {}, {"multipleOf": 5}, {"multipleOf": 0.5}]))
    within: list[dict[str, Any]] = [
        schema,
        {"type": "object", "properties": {"a": schema, "b": INTEGER}, "required": ["a"]},
        {"type": "array", "items": schema, "minItems": 1, "maxItems": 3},
        {"anyOf": [schema, {"type": "null"}]},
    ]
    return draw(st.sampled_from(within))


@settings(max_examples=60, deadline=None)
@given(number_schemas(), st.integers(0, 2**32), st.floats(0.5, 1))
def test_whatever_is_written_is_of_the_schema_and_ends(schema: dict[str, Any], seed: int, eager: float) -> None:
    """``eager``: how often a digit is chosen where one may come."""
    pick = random.Random(seed)
    digits = {token for token, text in enumerate(TOKENS) if text.isdigit()}

    def choose(allowed: set[int]) -> int:
        going = sorted(allowed & digits)
        if going and pick.random() < eager:
            return pick.choice(going)
        rest = sorted(allowed - digits - {ord(blank) for blank in " \t\r\n"})
        return pick.choice(rest or going)

    made = compile_source(SHARED, GrammarSource("json", json.dumps(schema)), frozenset())
    written = _written(Grammar(SHARED, made.text, numbers=NumberBound(TOKENS)), choose)
    value = json.loads(written)
    if made.unenforced or "Infinity" in json.dumps(value):
        return
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(value), (schema, written)


SHARED = VOCABULARY.build_tokenizer()


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize(
    "bounds",
    [
        {"exclusiveMinimum": 0, "maximum": 0.5},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 1e-9},
        {"exclusiveMinimum": 2, "exclusiveMaximum": 2.5},
        {"exclusiveMinimum": -0.5, "exclusiveMaximum": 0},
        {"minimum": -2.5, "exclusiveMaximum": -2},
        {"minimum": -1, "exclusiveMinimum": 0.0, "maximum": 0.5},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"minimum": 0, "maximum": 0.5},
    ],
    ids=json.dumps,
)
def test_a_bound_that_is_excluded_is_not_written(tokenizer: LLTokenizer, bounds: dict[str, Any], kind: str) -> None:
    schema = {"type": kind, **bounds}
    try:
        grammar = _grammar(tokenizer, schema)
    except GrammarError:
        assert kind == "integer"
        return
    validator = jsonschema_rs.Draft202012Validator(schema)
    near = [bound + part for bound in (*bounds.values(), 1, -1) for part in (-0.25, 0, 0.25)]
    texts = {*map(str, near), *(f"{number:.0f}" for number in near), "0.0000000001", "-0.0", "-0"}
    accepted = [text for text in sorted(texts) if _follows(grammar, text)]
    assert accepted or kind == "integer"
    assert all(validator.is_valid(json.loads(text)) for text in accepted), accepted


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "integer", "minimum": 10**40}, ["1" + "0" * 40, "9" * 41]),
        ({"type": "integer", "maximum": -(10**60)}, ["-1" + "0" * 60]),
        ({"type": "number", "minimum": 1e50}, ["1" + "0" * 50, "1e50", "2" + "0" * 50 + ".5"]),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-45}, ["0." + "0" * 45 + "1"]),
        ({"type": "integer", "minimum": 10**200}, ["1" + "0" * 200]),
        ({"const": 2**53}, [str(2**53)]),
        ({"enum": ["1" * 90, 3]}, [json.dumps("1" * 90)]),
        ({"type": "string", "pattern": "^[0-9]{60}$"}, [json.dumps("1" * 60)]),
        ({"type": "string", "pattern": "^[0-9]+-[0-9]+$"}, [json.dumps("1" * 60 + "-" + "2" * 60)]),
        (STRING, [json.dumps("1" * 90), json.dumps("a 1" + "1" * 300)]),
        ({}, [json.dumps({"1" * 90: "2" * 90})]),
    ],
)
def test_what_a_schema_demands_may_be_longer(tokenizer: LLTokenizer, schema: dict[str, Any], texts: list[str]) -> None:
    grammar = _grammar(tokenizer, schema)
    for text in texts:
        assert jsonschema_rs.Draft202012Validator(schema).is_valid(json.loads(text)), text
        assert _follows(grammar, text), text


def test_numbers_beyond_the_bound_are_not_written(tokenizer: LLTokenizer) -> None:
    number, whole = _grammar(tokenizer, NUMBER), _grammar(tokenizer, INTEGER)
    assert not _follows(whole, "1" * (MOST_DIGITS + 1))
    assert not _follows(number, "0." + "1" * (MOST_DIGITS + 1))
    assert not _follows(number, "1e" + "1" * (MOST_EXPONENT + 1))
    assert _follows(number, "-" + "1" * MOST_DIGITS + "." + "1" * MOST_DIGITS + "e-" + "1" * MOST_EXPONENT)


JSON_RULE = f"start: %json {json.dumps(with_options(INTEGER))}"
TAG = {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": INTEGER, "end": "</a>"}], "triggers": ["<a"]}


def test_every_json_that_is_compiled_is_bounded() -> None:
    """Also of calls, and between marks; before a mark a text may be anything."""
    compiler = GrammarCompiler(lambda: VOCABULARY, lambda text: list(text.encode()))
    long, longest = "1" * (MOST_DIGITS + 1), "1" * MOST_DIGITS
    try:
        whole = compiler.compile(GrammarSource("json", json.dumps(INTEGER)))
        call = compiler.compile(GrammarSource("lark", JSON_RULE))
        tag = compiler.compile(GrammarSource("structural_tag", json.dumps(TAG)))
        expression = compiler.compile(GrammarSource("regex", "[0-9]+"))
    finally:
        compiler.close()
    for grammar, before, after in ((whole, "", ""), (call, "", ""), (tag, long + "<a>", "</a>")):
        assert _follows(grammar, before + longest + after)
        assert not _follows(grammar, before + long + after)
    assert _follows(expression, long)
