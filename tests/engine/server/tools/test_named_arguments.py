"""Calls whose arguments are written one by one: whatever their grammar allows, their parser reads, and it is valid."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import anthropic
import jsonschema_rs
import numpy as np
import openai
import pytest
from tests.engine.server.following import follower, seen_tokens
from tests.engine.server.schemas import drawn
from tests.engine.server.tool_templates import QWEN3
from tests.engine.server.tools_tokenizer import vocabulary_of, with_special

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.server.parsers.call_form import RequiredCalls
from paternoster_engine.server.parsers.calls import glm45
from paternoster_engine.server.parsers.events import Arguments, CallBegin, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat

FAMILIES: dict[str, tuple[str, list[str]]] = {
    "qwen3_coder": ("<tool_call><function=", []),
    "glm45": ("<tool_call><arg_key>", []),
    "glm45_special": ("<tool_call><arg_key>", [*glm45.MARKERS]),
    "pythonic": ("<|python_start|>", []),
}
NAMES = ("city", "from", "n-1", "ключ")
TEXTS: list[Any] = [
    {"type": "string"}, {"type": ["string", "null"]}, {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]},
    {"anyOf": [{"enum": ["null", "a", "5"]}, {"type": "integer", "maximum": 7}, {"type": "array", "maxItems": 1}]},
    {"type": "string", "format": "uri"}, {"type": "string", "minLength": 1, "pattern": "/|^a$|[\\d/]{3}$"},
    {"type": ["string", "number"], "pattern": "^\\w+$"}, {"allOf": [{"type": "string"}, {"const": "</parameter"}]},
    {"items": {"enum": ["</parameter>", "</arg_value>", '"]', "<parameter="]}, "minItems": 1, "type": "array"},
    True, {},
]  # fmt: skip
PIECES = (
    "\n</parameter>\n", "</arg_value>", "\n", "</function>", '"', "]", "}", ")", "5", "null", "None", " nu", "[1", "{",
    "</", "</parameter", "</tool_call", "'", "\\", "\\ud800", "True", "1e999", "</parameter>", "/", "a", ".", ":", "-",
)  # fmt: skip
ENDS = {
    "qwen3_coder": ("</function>\n</tool_call>", "\n</parameter>\n", '"', "]", "}", "0"),
    "glm45": ("</tool_call>", "</arg_value>\n", '"', "]", "}", "0"),
    "pythonic": ('"', ")", "]", "}", "0"),
}
ENDS["glm45_special"] = ENDS["glm45"]
NUM_DRAWN = 24
WEATHER = {
    "$defs": {"unit": {"enum": ["C", "°F"]}},
    "properties": {"city": {"type": "string", "minLength": 1}, "unit": {"$ref": "#/$defs/unit"}, "day": {"maximum": 6}},
    "required": ["city", "unit"],
}
CALLS = RequiredCalls([("weather", WEATHER), ("now", {})], several=True)
WRITTEN = {
    "qwen3_coder": (
        "<tool_call>\n<function=weather>\n<parameter=city>\n{}\n</parameter>\n<parameter=unit>\n{}\n</parameter>\n"
        "</function>\n</tool_call>"
    ),
    "glm45": (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>{}</arg_value>\n<arg_key>unit</arg_key>\n"
        "<arg_value>{}</arg_value>\n</tool_call>"
    ),
    "pythonic": '[weather(city="{}", unit="{}")]',
}
WRITTEN["glm45_special"] = WRITTEN["glm45"]


@cache
def _form_of(tokenizer: Tokenizer, family: str) -> tuple[Tokenizer, AnswerFormat]:
    template, special = FAMILIES[family]
    made = with_special(tokenizer, *special, template=template)
    form = AnswerFormat.find_format(template, made.special_token_id)
    assert form.tools is TOOL_FORMATS[family.removesuffix("_special")]
    return made, form


def _finite(text: str) -> float:
    """1e999 is a number of JSON, for which the validator has none."""
    return max(-1e300, min(float(text), 1e300))


def _calls(form: AnswerFormat, tools: dict[str, Any], text: str) -> list[tuple[str, Any]]:
    parser = form.build_parser(tools, "")
    found: list[tuple[str, Any]] = []
    for event in join_events([*parser.parse_piece(text), *parser.finish()]):
        if isinstance(event, CallBegin):
            found.append((event.name, None))
        elif isinstance(event, Arguments):
            found[-1] = (found[-1][0], json.loads(event.text, parse_float=_finite))
    return found


def _schema(pick: random.Random) -> dict[str, Any]:
    """Schema of arguments, some of which refer to the root's definitions."""
    properties: dict[str, Any] = {}
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    for name in pick.sample(NAMES, pick.randrange(1, 4)):
        schema = pick.choice(TEXTS) if pick.random() < 0.5 else drawn(pick.randrange(10**6))
        if "$defs" in (schema if isinstance(schema, dict) else ()):
            made["$defs"] = {key: value for key, value in schema.items() if key == "$defs"}["$defs"]
            schema = {key: value for key, value in schema.items() if key != "$defs"}
        properties[name] = schema
    made["required"] = [name for name in properties if pick.random() < 0.7]
    if pick.random() < 0.3:
        made["additionalProperties"] = pick.choice([True, {"type": "integer"}, {"type": "string", "maxLength": 3}])
    return made


def _sampled(
    grammar: Grammar, tokenizer: Tokenizer, form: AnswerFormat, family: str, pick: random.Random
) -> str | None:
    """Tokens that are allowed, and such texts as end and trouble values; None if that comes to no end."""
    matcher, seen, (end, *_) = grammar.start_matcher(), seen_tokens(tokenizer, form), tokenizer.eos_token_ids
    sampled: list[int] = []
    pieces, ends = ([tokenizer.encode(piece) for piece in some] for some in (PIECES, ENDS[family]))
    while len(sampled) < 200:
        tried = [pick.choice(pieces)] if len(sampled) < 25 else [*ends, pick.choice(pieces)]
        fitting = next((ids for ids in tried if matcher.validate_tokens(ids) == len(ids)), [])
        if fitting and pick.random() < 0.8:
            sampled += fitting
            assert matcher.consume_tokens(fitting)
            continue
        mask = matcher.compute_bitmask()
        if matcher.is_error():
            return None
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")).tolist()
        token = end if end in allowed and pick.random() < 0.5 else pick.choice(allowed)
        if token == end:
            return b"".join(map(seen.spelled, sampled)).decode()
        sampled.append(token)
        assert matcher.consume_token(token)
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_sampled_is_read_and_valid(tokenizer: Tokenizer, family: str) -> None:
    made, form = _form_of(tokenizer, family)
    vocabulary = vocabulary_of(made)
    counts: Counter[str] = Counter()
    for seed in range(NUM_DRAWN):
        pick = random.Random(seed)
        tools = {"f": _schema(pick), "g.h": {"type": "object", "properties": {}}}
        try:
            outline = form.outline_required_calls(RequiredCalls(list(tools.items()), several=pick.random() < 0.5), "")
            assert outline is not None
            grammar = Grammar(vocabulary, to_grammar(GrammarSource("lark", outline.lark), frozenset()))
            grammar.check_masks()
        except GrammarError as error:
            counts["refused"] += 1
            print(f"{error}: {json.dumps(tools['f'], ensure_ascii=False)}")
            continue
        text = _sampled(grammar, made, form, family, pick)
        counts["unfinished" if text is None else "sampled"] += 1
        if text is None:
            continue
        calls = _calls(form, tools, text)
        assert calls, text
        for name, arguments in calls:
            errors = jsonschema_rs.Draft202012Validator(tools[name], validate_formats=True).iter_errors(arguments)
            assert not [str(error) for error in errors], (text, arguments)
    print(dict(counts))
    assert counts["refused"] <= NUM_DRAWN / 8
    assert counts["sampled"] > NUM_DRAWN / 3


@pytest.mark.parametrize("family", FAMILIES)
def test_required_calls_and_nothing_else(tokenizer: Tokenizer, family: str) -> None:
    made, form = _form_of(tokenizer, family)
    outline = form.outline_required_calls(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline)
    text = WRITTEN[family].format("Rome", "°F")
    assert follow(text) == ""
    assert _calls(form, dict(CALLS.tools), text) == [("weather", {"city": "Rome", "unit": "°F"})]
    for wrong in (WRITTEN[family].format("", "C"), WRITTEN[family].format("Rome", "K"), "It rains."):
        assert follow(wrong) != ""


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_that_a_model_begins(tokenizer: Tokenizer, family: str) -> None:
    made, form = _form_of(tokenizer, family)
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline)
    call = WRITTEN[family]
    texts = [call] if family == "pythonic" else [call, f"So: {call}\n{call}"]
    if family == "qwen3_coder":
        texts.append("So <function=" + call.split("<function=")[1].removesuffix("\n</tool_call>"))
    for text in texts:
        assert follow(text.format(*["Rome", "C"] * 2)) == ""
        assert follow(text.format(*["Rome", "K"] * 2)) != ""
        assert follow(text.format(*["Rome", "C"] * 2).rpartition("Rome")[0]) == "<end>"
    for text in ("It rains.", "[weather] and <function=weather", "[1, 2]"):
        assert follow(text) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text_of_limited_length(tokenizer: Tokenizer, family: str) -> None:
    made, form = _form_of(tokenizer, family)
    city = {"type": "string", "maxLength": 1000}
    schema = {"properties": {"city": city, "unit": city}, "required": ["city", "unit"]}
    outline = form.outline_required_calls(
        RequiredCalls([("weather", schema), *((f"f{i}", schema) for i in range(20))], True), ""
    )
    assert outline is not None
    follow = follower(made, form, outline)
    assert follow(WRITTEN[family].format("a<b " * 250, "x")) == ""
    assert follow(WRITTEN[family].format("a<b " * 251, "x")) != ""


@pytest.mark.parametrize("family", ["qwen3_coder", "glm45", "pythonic"])
def test_calls_after_thinking(tokenizer: Tokenizer, family: str) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id, tool_parser=family)
    outlines = form.outline_required_calls(CALLS, ""), form.outline_optional_calls(CALLS, "")
    good, wrong = (WRITTEN[family].format("Rome", unit) for unit in ("C", "K"))
    for outline in outlines:
        assert outline is not None
        follow = follower(tokenizer, form, outline)
        for before in ("", f"<think>\n{wrong} {{\n</think>\n\n"):
            assert follow(before + good) == ""
            assert follow(before + wrong) != ""
    # In place of an answer that is JSON; what begins as JSON would look the same.
    outline = form.of_answer(CALLS, "")
    assert outline is not None
    follow = follower(tokenizer, form, outline, GrammarSource("json", '{"const": 1}'))
    assert follow("1") == ""
    assert (follow(good) == "") == (family != "pythonic")


def test_a_real_model_calls_what_it_must(run_engine: Any, exact: Sequence[str]) -> None:
    """Each of the APIs is called; the default model has no notion of tools."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 5}, {"type": "null"}]},
            "days": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    validator = jsonschema_rs.Draft202012Validator(schema)
    flags = ("--tool-parser", "qwen3_coder", "--reasoning-parser", "none", "--max-model-len", "1024")
    with run_engine("--chat-template", QWEN3, *exact, *flags) as engine:
        client = openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)
        model = client.models.list().data[0].id
        function = {"name": "weather", "parameters": schema}
        chat_fields: Any = {"model": model, "messages": [{"role": "user", "content": "Go."}], "max_tokens": 120}
        tools: Any = [{"type": "function", "function": function}]
        (choice,) = client.chat.completions.create(
            **chat_fields, tools=tools, tool_choice="required", parallel_tool_calls=False
        ).choices
        assert choice.message.tool_calls is not None
        call = choice.message.tool_calls[0]
        assert call.type == "function"
        validator.validate(json.loads(call.function.arguments))
        items: Any = [{"type": "function", **function, "strict": True}]
        response = client.responses.create(
            model=model, input="Go.", tools=items, tool_choice={"type": "function", "name": "weather"}
        )
        item = response.output[0]
        assert item.type == "function_call"
        validator.validate(json.loads(item.arguments))
        other: Any = {"name": "weather", "input_schema": schema}
        anthropic_client = anthropic.Anthropic(base_url=engine.url, api_key="none", max_retries=0)
        message = anthropic_client.messages.create(
            **chat_fields, tools=[other], tool_choice={"type": "any", "disable_parallel_tool_use": True}
        )
        assert message.stop_reason == "tool_use"
        (block,) = message.content
        assert block.type == "tool_use"
        validator.validate(block.input)
