"""``tool_choice`` that asks for a call: the grammar that an answer is held to, and the answers themselves."""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.server.following import follower
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import DEEPSEEK_R1, HARMONY, LLAMA3, MISTRAL, QWEN3
from tests.engine.server.tools_tokenizer import with_special

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.server.parsers.arguments.enforced import enforce_arguments
from paternoster_engine.server.parsers.call_form import RequiredCalls
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
CITY = {
    "$defs": {"city": {"enum": ["Rome", "Zürich"]}},
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "additionalProperties": False}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Weather in Rome?"}],
    "tools": [
        {"type": "function", "function": {"name": "weather", "parameters": CITY}},
        {"type": "function", "function": {"name": "now", "parameters": NOTHING}},
    ],
}
CALLS = RequiredCalls([("weather", CITY), ("now", NOTHING)], several=True)
FAMILIES: dict[str, tuple[str, list[str]]] = {
    "hermes": (QWEN3, []),
    "llama3_json": (LLAMA3 + "<|python_tag|>", ["<|python_tag|>"]),
    "mistral": (MISTRAL + "{{ tools }}", ["[TOOL_CALLS]"]),
    "harmony": (HARMONY, ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"]),
}


@cache
def _form_of(tokenizer: Tokenizer, family: str) -> tuple[Tokenizer, AnswerFormat]:
    template, special = FAMILIES[family]
    made = with_special(tokenizer, *special, template=template)
    form = AnswerFormat.find_format(template, made.special_token_id)
    assert form.tools is TOOL_FORMATS[family]
    return made, form


def _written(form: AnswerFormat, made_calls: list[tuple[str, str]]) -> str:
    assert form.form is not None
    how = form.form
    calls = [how.before % name + arguments + how.after for name, arguments in made_calls]
    return how.opening + (how.between or "").join(calls) + how.closing


def _parsed(form: AnswerFormat, text: str, prompt: str = "") -> list[Event]:
    parser = form.build_parser({"weather": CITY, "now": NOTHING}, prompt)
    return join_events([*parser.parse_piece(text), *parser.finish()])


@pytest.mark.parametrize("family", FAMILIES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(made_calls=st.lists(st.sampled_from([("weather", '{"city": "Rome"}'), ("now", "{}")]), min_size=1, max_size=3))
def test_what_is_required_is_what_the_parser_reads(
    tokenizer: Tokenizer, family: str, made_calls: list[tuple[str, str]]
) -> None:
    _, form = _form_of(tokenizer, family)
    if form.form is not None and form.form.between is None:
        made_calls = made_calls[:1]
    assert _parsed(form, _written(form, made_calls)) == [
        event for name, arguments in made_calls for event in (CallBegin(name), Arguments(arguments))
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_grammar_takes_calls_and_nothing_else(tokenizer: Tokenizer, family: str) -> None:
    made, form = _form_of(tokenizer, family)
    outline = form.outline_required_calls(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline)
    rome, now = ("weather", '{"city": "Rome"}'), ("now", "{}")
    assert follow(_written(form, [rome])) == ""
    assert follow(_written(form, [now])) == ""
    if form.form is not None and form.form.between is not None:
        assert follow(_written(form, [rome, now])) == ""
    for wrong in (("weather", '{"city": "Paris"}'), ("other", "{}"), ("now", '{"a": 1}'), ("weather", "{}")):
        assert follow(_written(form, [wrong])) != ""
    assert follow("It rains.") == "It rains."
    if form.reasons:
        begin, end = ("<think>\n", "\n</think>\n\n") if form.reasoning else (
            "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"
        )  # fmt: skip
        text = f"{begin}Hm {{{end}{_written(form, [rome])}"
        assert follow(text) == ""
        assert _parsed(form, text) == [Reasoning("Hm {"), CallBegin("weather"), Arguments('{"city": "Rome"}')]
        assert follow(f"{begin}Hm") == "<end>"


def test_reasoning_that_the_prompt_begins_must_end_before_the_calls(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(DEEPSEEK_R1 + "<tool_call>", tokenizer.special_token_id)
    outline = form.outline_required_calls(CALLS, "<think>\n")
    assert outline is not None
    text = "Hm.\n</think>\n\n" + _written(form, [("now", "{}")])
    follow = follower(tokenizer, form, outline)
    assert follow(text) == ""
    assert follow("Hm.") == "<end>"
    assert _parsed(form, text, "<think>\n") == [Reasoning("Hm."), CallBegin("now"), Arguments("{}")]


def _tool(name: str, property_schema: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": {"type": "object", "properties": {"x": property_schema}}, "strict": True}
    return {"type": "function", "function": function}


GOOD, BAD, GOOD_TOO = _tool("good", {"type": "string"}), _tool("bad", {"uniqueItems": True}), _tool("too", {})


PLAIN = "{{ tools }}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "fields", "param", "message"),
    [
        (PLAIN, {"tool_choice": "required"}, "tool_choice", "no grammar describes"),
        (PLAIN + "<|python_start|>", {"tool_choice": "required", "tools": [
            {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"minProperties": 1}}}]},
         "tools.0.function.parameters", "cannot be enforced: minProperties is not supported"),
        (QWEN3, {"tool_choice": "required", "guided_choice": ["a"]}, "tool_choice", "together with guided_choice"),
        (QWEN3, {"tool_choice": {"type": "function", "function": {"name": "now"}}, "use_beam_search": True},
         "tool_choice", "use_beam_search"),
        (QWEN3, {"tool_choice": "required", "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": 7}}}}}]},
         "tools.0.function.parameters", "cannot be enforced: type must be a string or array"),
        (QWEN3, {"tool_choice": "required", "tools": [GOOD, BAD, GOOD_TOO]}, "tools.1.function.parameters",
         'tools.1.function.parameters: cannot be enforced: properties.x.uniqueItems is'),
        (QWEN3, {"tool_choice": {"type": "function", "function": {"name": "bad"}}, "tools": [GOOD, BAD]},
         "tools.1.function.parameters", "cannot be enforced: properties.x.uniqueItems"),
        (QWEN3, {"tools": [GOOD, BAD]}, "tools.1.function.parameters", "cannot be enforced: properties.x.uniqueItems"),
        (QWEN3, {"tools": [GOOD, BAD], "response_format": {"type": "json_object"}}, "tools.1.function.parameters",
         "cannot be enforced: properties.x.uniqueItems"),
        (QWEN3, {"tools": [GOOD], "guided_json": {"not": {}}}, "guided_json", "enforced: it allows no answer"),
    ],
)  # fmt: skip
async def test_what_cannot_be_required(
    tokenizer: Tokenizer, template: str, fields: dict[str, Any], param: str, message: str
) -> None:
    async with scripted_server(tokenizer.with_template(template))(**ROOM) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | fields)
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param), response.text
        assert error["message"].startswith(param)
        assert message in error["message"]
        assert "arguments_" not in error["message"], "the grammar that is made of it is not the client's"


def test_arguments_have_the_names_of_the_schema_alone_unless_it_says_otherwise(tokenizer: Tokenizer) -> None:
    """Behind a later one no name may begin that of an earlier one: it could only go on as another."""
    made, form = _form_of(tokenizer, "hermes")
    schema: dict[str, Any] = {"properties": {"limit": {"type": "integer"}, "query": {"type": "string"}}}
    beside = '{"query": "x", "limits": 1}'
    for changes, allowed in (
        ({}, False),
        ({"required": ["query"]}, False),
        ({"additionalProperties": True}, True),
        ({"required": ["limits"]}, True),
        ({"properties": schema["properties"] | {"limits": {}}}, True),
        ({"patternProperties": {"^l": {"type": "integer"}}}, True),
    ):
        assert form.form is not None
        enforced = enforce_arguments(form.form.arguments, schema | changes).schema
        outline = form.outline_required_calls(RequiredCalls([("f", enforced)], several=False), "")
        assert outline is not None
        follow = follower(made, form, outline)
        assert (follow(_written(form, [("f", beside)])) == "") == allowed, changes
        if changes != {"required": ["limits"]}:
            assert follow(_written(form, [("f", '{"limit": 1, "query": "x"}')])) == ""


def test_any_character_may_be_escaped(tokenizer: Tokenizer) -> None:
    made, form = _form_of(tokenizer, "hermes")
    outline = form.outline_required_calls(
        RequiredCalls([("f", {"properties": {"a": {"minLength": 1}}})], several=False), ""
    )
    assert outline is not None
    follow = follower(made, form, outline)
    for text in ("caf\\u00e9", "\\u4f60", "\\ud83d\\ude00", "\\n", "\\u001f"):
        assert follow(_written(form, [("f", f'{{"a": "{text}"}}')])) == "", text


def test_schemas_that_are_too_long_together_are_not_all_looked_at(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    calls = RequiredCalls([(name, {"enum": ["a" * 60_000]}) for name in "abcde"], several=True)
    for make in (form.outline_required_calls, form.outline_optional_calls):
        with pytest.raises(GrammarError, match="the grammar of all tools has more than 262144 bytes"):
            make(calls, "")


NAMED = {"type": "function", "function": {"name": "weather"}}
IMPOSSIBLE = {"type": "object", "properties": {"a": {"not": {}}}}


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": NOTHING, "strict": True}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": IMPOSSIBLE}}},
        {"guided_json": NOTHING},
        {"structured_outputs": {"json_object": True}},
    ],
)
async def test_a_required_call_leaves_nothing_to_be_of_a_json_format(
    tokenizer: Tokenizer, choice: Any, fields: dict[str, Any]
) -> None:
    """OpenAI takes both, and its Agents SDK sends both."""
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    async with scripted_server(tokenizer.with_template(QWEN3))(text, **ROOM) as server:
        body = CHAT | {"tool_choice": choice} | fields
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        (call,) = response.json()["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}


async def test_each_api_names_the_tool_in_its_own_words(tokenizer: Tokenizer) -> None:
    good, bad = GOOD["function"]["parameters"], {"properties": {"x": {"$ref": "#/$defs/none"}}}
    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        tools = [
            {"type": "function", "name": name, "parameters": parameters}
            for name, parameters in (("a", good), ("b", bad))
        ]
        body = {"input": "Hi", "tools": tools, "tool_choice": "required"}
        response = await server.client.post("/v1/responses", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "tools.1.parameters")
        used = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in tools]
        body = {"max_tokens": 8, "messages": CHAT["messages"], "tools": used, "tool_choice": {"type": "any"}}
        response = await server.client.post("/v1/messages", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("tools.1.input_schema: cannot be enforced: $ref")
