"""Keywords that cannot be enforced: named in a header, refused where the client says strict, whatever API it speaks."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.server.openai.fields.body import MAX_IGNORED
from paternoster_engine.server.openai.fields.structured import StructuredOutputs
from paternoster_engine.server.parsers.arguments.enforced import enforce_arguments
from paternoster_engine.server.parsers.calls import glm45, hermes, pythonic, qwen3_coder

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
IGNORED = "x-paternoster-ignored"
ODD = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": ODD, "end": "</f>"}], "triggers": ["<f"]}
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


def _format(schema: Any, strict: bool | None = None) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}


def _tool(strict: bool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": ODD, "strict": strict}}


LENIENT: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"response_format": _format(ODD)}, "response_format.json_schema.schema"),
    ("chat/completions", {"response_format": _format(ODD, False), "stream": True},
     "response_format.json_schema.schema"),
    ("chat/completions", {"structured_outputs": {"json": ODD}}, "structured_outputs.json"),
    ("chat/completions", {"guided_json": ODD}, "guided_json"),
    ("chat/completions", {"tools": [_tool(False)], "tool_choice": "required"}, "tools.0.function.parameters"),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": ODD}}}, "text.format.schema"),
    ("messages", {"output_config": {"format": {"type": "json_schema", "schema": ODD}}}, "output_config.format.schema"),
    ("messages", {"tools": [{"name": "f", "input_schema": ODD}], "tool_choice": {"type": "any"}},
     "tools.0.input_schema"),
]  # fmt: skip
STRICT: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"response_format": _format(ODD, True)}, "response_format.json_schema.schema"),
    ("chat/completions", {"tools": [_tool(True)]}, "tools.0.function.parameters"),
    ("chat/completions", {"tools": [_tool(True)], "tool_choice": "required"}, "tools.0.function.parameters"),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": ODD, "strict": True}}},
     "text.format.schema"),
    ("responses", {"tools": [{"type": "function", "name": "f", "parameters": ODD, "strict": True}]},
     "tools.0.parameters"),
]  # fmt: skip


def _body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    return ({"input": "Hi"} if path == "responses" else HI) | fields


async def test_what_is_not_enforced_is_named(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer.with_template(QWEN3))("one two", **ROOM) as server:
        for path, fields, field in LENIENT:
            response = await server.client.post(f"/v1/{path}", json=_body(path, fields))
            assert response.status_code == 200, (fields, response.text)
            assert response.headers.get(IGNORED) == f"{field}.properties.a.uniqueItems", fields


async def test_where_the_client_says_strict_it_is_refused(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer.with_template(QWEN3))("one two", **ROOM) as server:
        for path, fields, field in STRICT:
            response = await server.client.post(f"/v1/{path}", json=_body(path, fields))
            assert response.status_code == 400, (fields, response.text)
            error = response.json()["error"]
            assert error["param"] == field, fields
            assert error["message"].startswith(f"{field}: cannot be enforced: properties.a.uniqueItems"), fields
            assert "strict" in error["message"]


async def test_an_unknown_format_is_an_annotation_of_a_strict_schema_too(serve: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "fancy"}}}
    async with serve("one") as server:
        response = await server.client.post(
            "/v1/chat/completions", json=HI | {"response_format": _format(schema, True)}
        )
        assert response.status_code == 200, response.text
        assert response.headers[IGNORED] == "response_format.json_schema.schema.properties.a.format"


async def test_the_header_is_bounded_whatever_a_schema_has(serve: Any) -> None:
    properties = {f"{'ü, ' * 400}{i}\r\n": {"type": "array", "uniqueItems": True} for i in range(90)}
    deep: dict[str, Any] = {"type": "array", "uniqueItems": True}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    async with serve("one") as server:
        for schema in ({"type": "object", "properties": properties}, deep):
            response = await server.client.post("/v1/chat/completions", json=HI | {"response_format": _format(schema)})
            assert response.status_code == 200, response.text
            names = response.headers[IGNORED].split(", ")
            assert 1 <= len(names) <= MAX_IGNORED
            assert all(name.isascii() and len(name) < 400 for name in names)


OF_ALL: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]}, ["anyOf"]),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1}, ["minProperties"]),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}}}, []),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]}, []),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a|^b)c"}}}, ["properties.a.pattern"]),
    ({"type": "object", "properties": {"a": {"type": "string", "format": "path"}}}, []),
    ({"type": "object", "properties": {"a": {"type": "string", "format": "ipv6"}}}, []),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(?!admin)\w+$"}}}, []),
    ({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}}},
     ["properties.a.oneOf"]),
]  # fmt: skip


@pytest.mark.parametrize(
    "form", [qwen3_coder.FORM, glm45.FORM, pythonic.FORM], ids=["qwen3_coder", "glm45", "pythonic"]
)
@pytest.mark.parametrize(("schema", "paths"), OF_ALL)
def test_arguments_that_are_written_one_by_one(form: Any, schema: dict[str, Any], paths: list[str]) -> None:
    made = enforce_arguments(form.arguments, schema)
    assert [".".join((*each.path, each.keyword)) for each in made.unenforced] == paths
    lines = [*form.arguments("a", made.schema, {})]
    assert any('"a' in line or ">a" in line or "=a" in line for line in lines), "the argument is among them"


def test_arguments_that_are_json_are_held_to_more() -> None:
    assert enforce_arguments(hermes.FORM.arguments, OF_ALL[0][0]).unenforced == ()


def test_white_space_is_bounded_and_may_be_none() -> None:
    schema = json.dumps({"type": "object", "additionalProperties": {"type": "array"}})
    vocabulary = LLTokenizer("byte")

    def accepts(text: str, **options: bool) -> bool:
        matcher = Grammar(vocabulary, to_grammar(GrammarSource("json", schema, **options), frozenset())).start_matcher()
        tokens = list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    nested: Any = 1
    for _ in range(4):
        nested = [nested, {"a": None}]
    for indent in (None, 2, 4, "\t"):
        assert accepts(json.dumps({"a": nested}, indent=indent))
    assert accepts('{"a":\r\n  []}')
    for blanks in (" " * 33, "\n" * 33, "\n \t" * 11):
        assert not accepts(f'{{{blanks}"a":[]}}')
        assert not accepts(f'{{"a":{blanks}[]}}')
    assert accepts('{"a":[1,2]}', compact=True)
    assert not accepts('{"a": [1]}', compact=True)
    assert not accepts('{"a":[1,\n2]}', compact=True)


@pytest.mark.parametrize("fields", [{"json": ODD}, {"json_object": True}, {"structural_tag": TAG}])
@pytest.mark.parametrize("compact", [False, True])
def test_the_switch_of_white_space(fields: dict[str, Any], compact: bool) -> None:
    body = StructuredOutputs.model_validate(fields | {"disable_any_whitespace": compact})
    assert [source.compact for _, source in body.list_sources()] == [compact]
    default = StructuredOutputs.model_validate(fields)
    assert [source.compact for _, source in default.list_sources()] == [False]
