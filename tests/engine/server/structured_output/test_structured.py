"""Structured output on the wire: which bodies ask for it, and which are refused by name."""

import asyncio
import json
import math
from collections.abc import Iterable
from typing import Any

import pytest

from paternoster_engine.server.openai.fields.body import collect_ignored
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest

JSON = {"content-type": "application/json"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
ACCEPTED: list[dict[str, Any]] = [
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "json_object"}},
    {"response_format": FORMAT},
    {"response_format": TAG},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}},
    {"structured_outputs": {"regex": "[0-9]+"}},
    {"structured_outputs": {"choice": ["a", "b"]}},
    {"structured_outputs": {"grammar": 'start: "a"'}},
    {"structured_outputs": {"grammar": 'root ::= "a"'}},
    {"structured_outputs": {"json_object": True}},
    {"structured_outputs": {"structural_tag": json.dumps(TAG)}},
    {"structured_outputs": {"structural_tag": TAG}},
    {"guided_json": SCHEMA},
    {"guided_regex": "a/b"},
    {"guided_choice": ["x"]},
    {"guided_grammar": 'start: "a"'},
    {"guided_json": None, "response_format": None},
    {"structured_outputs": {"regex": "a", "disable_any_whitespace": False, "whitespace_pattern": None}},
    {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
    {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
    {"structured_outputs": {"regex": "a", "disable_fallback": False, "disable_additional_properties": False}},
    {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": True}},
]


def _schema_format(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def _schema(**schema: Any) -> dict[str, Any]:
    return _schema_format(schema)


JSON_SCHEMA = "response_format.json_schema"
ENFORCED = "response_format.json_schema.schema"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "yaml"}}, "response_format", "json_schema"),
    ({"response_format": "json"}, "response_format", ""),
    ({"response_format": {"type": "json_schema"}}, JSON_SCHEMA, "required"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, f"{JSON_SCHEMA}.schema", "required"),
    (_schema_format([1]), f"{JSON_SCHEMA}.schema", "object"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema", "unknown field"),
    ({"response_format": {**TAG, "triggers": ["<g"]}}, "response_format", "starts with none of the triggers"),
    ({"response_format": {**TAG, "structures": []}}, "response_format.structures", "at least 1"),
    ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
     "structured_outputs.whitespace_pattern", "null"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "null"),
    ({"structured_outputs": {}}, "structured_outputs", "exactly one of json, regex, choice"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "not regex and choice"),
    ({"response_format": FORMAT, "guided_choice": ["a"]}, "guided_choice", "together with response_format"),
    ({"regex": "a", "guided_regex": "b"}, "regex", "together with guided_regex"),
    ({"regex": "a", "ebnf": 'root ::= "a"'}, "ebnf", "together with regex"),
    ({"stop_regex": "a"}, "stop_regex", "null"),
    ({"no_stop_trim": True}, "no_stop_trim", "false"),
    ({"custom_logit_processor": "x"}, "custom_logit_processor", "null"),
    ({"lora_path": "x"}, "lora_path", "null"),
    ({"guided_json": SCHEMA, "guided_grammar": "start: \"a\""}, "guided_grammar", "guided_json"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1"),
    ({"guided_choice": ["a", ""]}, "guided_choice.1", "at least 1"),
    ({"guided_choice": "a"}, "guided_choice", "list"),
    ({"guided_json": "no json"}, "guided_json", "is not JSON"),
    ({"guided_json": True}, "guided_json", "must be an object, or the text of one in JSON"),
    ({"guided_regex": ""}, "guided_regex", "at least 1"),
    ({"guided_regex": "(a"}, "guided_regex", "unclosed group"),
    ({"guided_regex": "a(?=b)"}, "guided_regex", "look-around"),
    ({"guided_regex": r"(a)\1"}, "guided_regex", "backreferences"),
    ({"guided_grammar": "start: foo"}, "guided_grammar", "unknown name"),
    ({"guided_grammar": "root ::= (("}, "guided_grammar", "neither Lark nor GBNF"),
    ({"guided_grammar": "start: start"}, "guided_grammar", "allows no answer"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "required"),
    ({"guided_grammar": 'start: %json {"x-guidance": {"lenient": true}, "not": {}}'}, "guided_grammar", "not"),
    (_schema(**{"not": {}}), ENFORCED, "not"),
    (_schema(properties={f"p{i}": {"type": "string"} for i in range(600)}), ENFORCED, "names where hundreds are opt"),
    (_schema(type="integer", minimum=5, maximum=3), ENFORCED, "minimum"),
    (_schema(**{"$ref": "https://example.com/x"}), ENFORCED, "example.com"),
    (_schema(**{"$ref": "#"}), ENFORCED, "leads back to itself"),
    (_schema(type="text"), ENFORCED, "text"),
    (_schema(const="\ud800"), f"{JSON_SCHEMA}.schema", "lone surrogate"),
    ({"guided_json": '{"const": "\\ud800"}'}, "guided_json", "lone surrogate"),
    ({"structured_outputs": {"json": {"\ud800": {}}}}, "structured_outputs.json", "lone surrogate"),
    ({"guided_json": '{"const": NaN}'}, "guided_json", "is not JSON"),
    (_schema(const=math.nan), f"{JSON_SCHEMA}.schema", "is not JSON"),
]  # fmt: skip


async def test_accepted_for_chat_and_text(serve: Any) -> None:
    async with serve("one") as server:
        for body in ACCEPTED:
            for path, rest in (("chat/completions", CHAT), ("completions", {"prompt": "Hi"})):
                response = await server.client.post(f"/v1/{path}", json={**rest, **body, "max_tokens": 1})
                assert response.status_code == 200, (body, response.text)


@pytest.mark.parametrize(
    ("body", "field", "kind", "ignored"),
    [
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "a"}, "structured_outputs.regex", "regex", []),
        ({"structured_outputs": {"json": SCHEMA}, "guided_json": SCHEMA}, "structured_outputs.json", "json", []),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}, "guided_json": SCHEMA},
            "structured_outputs.json",
            "json",
            [],
        ),
        (
            {"structured_outputs": {"regex": "a"}, "guided_regex": "b", "guided_choice": ["a"]},
            "structured_outputs.regex",
            "regex",
            ["guided_regex", "guided_choice"],
        ),
        (_schema_format(SCHEMA) | {"guided_json": SCHEMA}, "response_format.json_schema.schema", "json", []),
        (
            _schema_format(SCHEMA) | {"structured_outputs": {"json": SCHEMA}},
            "response_format.json_schema.schema",
            "json",
            [],
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"json_object": True}},
            "response_format",
            "json",
            [],
        ),
    ],
)
def test_equal_forms_count_once_and_structured_outputs_precede_guided(
    body: dict[str, Any], field: str, kind: str, ignored: list[str]
) -> None:
    """guidance sends ``guided_X`` beside ``structured_outputs.X``, for older vLLMs."""
    with collect_ignored() as names:
        found = ChatCompletionRequest.model_validate({**CHAT, **body}).find_structure()
    assert found is not None
    assert (found.field, found.source.kind, names) == (field, kind, ignored)


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [("regex", "a", "regex"), ("json_schema", json.dumps(SCHEMA), "json"), ("ebnf", 'root ::= "a"', "grammar")],
)
async def test_sglangs_fields_hold_the_answer(serve: Any, field: str, value: str, kind: str) -> None:
    for request in (
        ChatCompletionRequest.model_validate({**CHAT, field: value}),
        CompletionRequest.model_validate({"prompt": "Hi", field: value}),
    ):
        found = request.find_structure()
        assert found is not None
        assert (found.field, found.source.kind) == (field, kind)
        assert found.source.text == value
    async with serve("a") as server:
        for path, rest in (("chat/completions", CHAT), ("completions", {"prompt": "Hi"})):
            response = await server.client.post(f"/v1/{path}", json={**rest, field: value, "max_tokens": 1})
            assert response.status_code == 200, response.text
            assert "x-paternoster-ignored" not in response.headers
            response = await server.client.post(f"/v1/{path}", json={**rest, field: "("})
            assert (response.status_code, response.json()["error"]["param"]) == (400, field)


async def test_a_guided_field_that_is_passed_over_is_named(serve: Any) -> None:
    async with serve("a") as server:
        body = {**CHAT, "structured_outputs": {"regex": "a"}, "guided_regex": "b"}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        assert response.headers["x-paternoster-ignored"] == "guided_regex"


async def test_refused_by_name(serve: Any) -> None:
    async with serve("one") as server:
        for body, field, reason in REFUSED:
            for path, rest in (("chat/completions", CHAT), ("completions", {"prompt": "Hi"})):
                # Python's own JSON has numbers and characters that the client's library would not send.
                content = json.dumps({**rest, **body})
                response = await server.client.post(f"/v1/{path}", content=content, headers=JSON)
                assert response.status_code == 400, (body, response.text)
                error = response.json()["error"]
                assert error["param"] == field, (body, error)
                assert reason in error["message"], (body, error)
                assert error["message"].startswith(field), (body, error)


async def test_with_beams_it_is_refused(serve: Any) -> None:
    async with serve("one") as server:
        body = {**CHAT, "response_format": {"type": "json_object"}, "use_beam_search": True, "n": 2}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "response_format"
        assert "use_beam_search" in response.json()["error"]["message"]


def _all(schemas: Iterable[Any]) -> dict[str, Any]:
    return {"allOf": list(schemas)}


def _pattern(regex: str) -> dict[str, Any]:
    return {"type": "string", "pattern": regex}


def _with(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}}


def _leading_to_itself(ways: int) -> dict[str, Any]:
    rule = {"anyOf": [*[{"$ref": "#/$defs/d"}] * ways, {"type": "array", "items": {"$ref": "#/$defs/d"}}]}
    return {
        "$defs": {"d": rule},
        "type": "object",
        "properties": {"n": {"type": "integer"}, "in": {"$ref": "#/$defs/d"}},
    }


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "megabyte of schema": (
        {"guided_json": {"enum": [f"value {i} {'x' * 20}" for i in range(40_000)]}}, "bytes, of at most 262144",
    ),
    "endless intersection": (
        {"guided_json": _all(_pattern(f"^(.*[a-f]{{{i}}}.*)$") for i in range(3, 30))}, "takes more than 1 s",
    ),
    # Time or memory, whichever ends first.
    "huge multiple": ({"guided_json": {"type": "integer", "multipleOf": 99_999_989}}, "to compile"),
    "exponential anyOf": (
        {"guided_json": _all({"anyOf": [_with(f"p{i}_{j}") for j in range(4)]} for i in range(12))}, "schema too large",
    ),
    # To compile it or for one of its masks, whichever is first.
    "forced text": ({"guided_json": {"const": "word " * 30_000}}, "s of a processor"),
    "forced repetition": ({"guided_regex": "a{200000}"}, "s of a processor"),
    "deep regex": ({"guided_regex": "(" * 20_000 + "a" + ")" * 20_000}, "invalid regex"),
    "deep lark": ({"guided_grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000}, "too deeply nested"),
    "deep gbnf": ({"guided_grammar": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000}, "nested too deeply"),
    "equal alternatives behind a text": (
        {"guided_grammar": "start: /[a-z ]{20}/ r\nr: " + " | ".join(["r r"] * 990) + ' | "a"'}, "items to look at",
    ),
    "references to themselves": ({"guided_json": _leading_to_itself(2000)}, "items to look at"),
    "endless references": ({"guided_json": {"allOf": [{"$ref": "#"}]}}, "allows no answer"),
}  # fmt: skip
"""And why it is refused."""
BOMBS = ("(a|b)*a(a|b){500}", "(x+x+)+y", "((a{1,99}){1,99}){1,99}", "(a?){500}a{500}", "(.*a){200}")
"""Regular expressions that take other engines exponentially long, or as much memory: here each step is bounded."""


async def test_what_is_hostile_is_refused_in_time_while_others_go_on(serve: Any) -> None:
    """Also a second time, when it is known: then nothing is compiled."""
    async with serve("one two three") as server:
        done = asyncio.Event()

        async def others() -> int:
            answered = 0
            while not done.is_set():
                response = await server.client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
                assert response.status_code == 200
                answered += 1
                # It is there to be answered, not to take the processor that refusing takes.
                await asyncio.sleep(0.05)
            return answered

        neighbour = asyncio.create_task(others())
        for turn in range(2):
            for name, (body, reason) in HOSTILE.items():
                response = await server.client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2, **body})
                assert response.status_code == 400, (name, response.text[:300])
                error = response.json()["error"]
                assert error["param"] == next(iter(body)), name
                assert "cannot be enforced" in error["message"], name
                assert reason in error["message"], name
                assert len(error["message"]) < 600, name
            for bomb in BOMBS:
                body = {"prompt": "Hi", "max_tokens": 2, "guided_regex": bomb}
                assert (await server.client.post("/v1/completions", json=body)).status_code == 200, bomb
            if turn == 0:
                counts_before = dict(server.loop._observer.grammars)
        done.set()
        assert await neighbour > len(HOSTILE)
        assert counts_before["refused"] == len(HOSTILE)
        response = await server.client.post(
            "/v1/completions", json={"prompt": "Hi", "guided_regex": "a+", "max_tokens": 1}
        )
        assert response.status_code == 200


async def test_a_process_that_is_killed_is_replaced(serve: Any) -> None:
    async with serve("one") as server:
        body = {"prompt": "Hi", "max_tokens": 1}
        assert (await server.client.post("/v1/completions", json={**body, "guided_regex": "a"})).status_code == 200
        process = server.state.served.answers.grammars._compiler._process
        process.close()
        assert (await server.client.post("/v1/completions", json={**body, "guided_regex": "b"})).status_code == 200


async def test_the_same_grammar_is_compiled_once(serve: Any) -> None:
    async with serve("one two") as server:
        body = {"prompt": "Hi", "max_tokens": 1, "guided_json": SCHEMA}
        responses = await asyncio.gather(*(server.client.post("/v1/completions", json=body) for _ in range(4)))
        assert {response.status_code for response in responses} == {200}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
        counts = server.loop._observer.grammars
        assert (counts["compiled"], counts["refused"]) == (1, 0)
        assert counts["cached"] >= 1
        scraped = (await server.admin.get("/metrics")).text
        assert 'paternoster_engine_grammars_total{model_name="scripted",result="compiled"} 1.0' in scraped
        assert 'paternoster_engine_grammar_compile_seconds_count{model_name="scripted"} 1.0' in scraped
