"""Whatever is wrong with a body, the error names a field that was sent, or one that is missing, and nothing of ours."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from paternoster_engine.server.bodies.invalid_fields import describe_errors
from paternoster_engine.server.embeddings.requests import (
    CohereEmbedRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
)
from paternoster_engine.server.messages.requests import MessagesRequest
from paternoster_engine.server.openai.fields.body import Body
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, TokenizeRequest
from paternoster_engine.server.responses.requests import ResponsesRequest

FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}],
    "triggers": ["<a"],
}
BODIES: dict[str, tuple[type[Body], dict[str, Any]]] = {
    "chat": (
        ChatCompletionRequest,
        {
            "messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "x"}],
            "response_format": FORMAT,
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "logit_bias": {"5": 1.0},
            "stop": ["x"],
            "stream": True,
            "stream_options": {"include_usage": True},
            "early_stopping": "never",
            "chat_template_kwargs": {"a": 1},
            "documents": [{"title": "t"}],
        },
    ),
    "tag": (ChatCompletionRequest, {"messages": [USER], "response_format": TAG}),
    "structured": (CompletionRequest, {"prompt": "p", "structured_outputs": {"structural_tag": TAG}, "stop": "x"}),
    "choice": (CompletionRequest, {"prompt": [[1, 2]], "structured_outputs": {"choice": ["a"]}, "guided_json": "{}"}),
    "tokenize": (TokenizeRequest, {"messages": [USER]}),
    "responses": (
        ResponsesRequest,
        {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "tool_choice": {"type": "function", "name": "f"},
            "reasoning": {"effort": "low"},
        },
    ),
    "messages": (
        MessagesRequest,
        {
            "max_tokens": 5,
            "messages": [USER],
            "system": [{"type": "text", "text": "s"}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "stop_sequences": ["x"],
            "metadata": {"user_id": "u"},
        },
    ),
    "embeddings": (EmbeddingRequest, {"input": ["a", "b"], "encoding_format": "float"}),
    "embed": (
        CohereEmbedRequest,
        {"inputs": [{"content": [{"type": "text", "text": "a"}]}], "embedding_types": ["int8"], "truncate": "END"},
    ),
    "rerank": (RerankRequest, {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}),
    "score": (ScoreRequest, {"text_1": "a", "text_2": ["b"]}),
}
WRONG: tuple[Any, ...] = (None, 5, -1, 2.5, True, "wrong", [], {}, [None], [5], ["wrong"], {"wrong": 5}, [[]], [{}])
OURS = re.compile(
    r"pydantic|validation error|instance of|[a-z][A-Z]\w+Request|_leave_out|function-|\btag\b.*using|Discriminator"
)
INTERNAL_NAMES = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")


def places(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(body: Any, path: tuple[int | str, ...], value: Any) -> Any:
    if not path:
        return value
    other = copy.copy(body)
    other[path[0]] = changed(body[path[0]], path[1:], value)
    return other


def leads_through(body: Any, path: str, *, missing: bool) -> bool:
    parts = path.split(".")
    for place, part in enumerate(parts):
        if isinstance(body, list) and part.isdigit() and int(part) < len(body):
            body = body[int(part)]
        elif isinstance(body, dict) and part in body:
            body = body[part]
        else:
            return missing and isinstance(body, dict) and place == len(parts) - 1
    return True


@pytest.mark.parametrize("kind", BODIES)
def test_every_wrong_value_at_every_place_is_told_by_its_place(kind: str) -> None:
    model, whole = BODIES[kind]
    refused = 0
    fields = [(name,) for name in model.model_fields if name not in whole]
    for path in [*places(whole), *fields]:
        for wrong in WRONG:
            body = {**whole, path[0]: wrong} if path in fields else changed(whole, path, wrong)
            try:
                model.model_validate(body)
            except ValidationError as error:
                errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
                message, param = describe_errors(errors, body)
                refused += 1
                assert not OURS.search(message), (path, wrong, message)
                assert not INTERNAL_NAMES.search(message), (path, wrong, message)
                if param is not None:
                    assert leads_through(body, param, missing=True), (path, wrong, param, message)
                    assert message.startswith(f"{param}: "), (path, wrong, message)
    assert refused > 20


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
            "Field required",
        ),
        ({"response_format": {"type": "x"}}, "response_format", "the field 'type' must be one of 'text', "),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "(got null)"),
        ({"user": "x" * 257}, "user", "must have at most 256 characters, not 257"),
        ({"messages": [None]}, "messages.0", "must be an object (got null)"),
        (
            {
                "tools": [{"type": "function", "function": FUNCTION}],
                "tool_choice": {"type": "function", "function": {"name": 7}},
            },
            "tool_choice.function.name",
            "Input should be a valid string (got 7)",
        ),
    ],
)
def test_paths_and_values_are_those_of_the_body(changes: dict[str, Any], param: str, message: str) -> None:
    body = {"messages": [USER], **changes}
    with pytest.raises(ValidationError) as caught:
        ChatCompletionRequest.model_validate(body)
    described, expected = describe_errors(
        [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()], body
    )
    assert expected == param
    assert message in described


WORDS = {
    "string": ("text", "string", '"', "'"),
    "array": ("list",),
    "object": ("object", "{"),
    "integer": ("integer", "ids"),
    "number": ("number",),
    "boolean": ("boolean",),
}
"""What a message calls the types of JSON."""
OF_TYPE: dict[str, Any] = {"string": "x", "array": [], "object": {}, "integer": 5, "number": 2.5, "boolean": True}


def types_of(schema: dict[str, Any], root: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return types_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema or "oneOf" in schema:
        return {each for part in schema.get("anyOf") or schema["oneOf"] for each in types_of(part, root)}
    if "enum" in schema or "const" in schema:
        return {"string"}
    return {schema["type"]} - {"null"} if "type" in schema else set(WORDS)


def unions() -> Iterator[tuple[type[Body], str, set[str]]]:
    for model in dict.fromkeys(model for model, _ in BODIES.values()):
        root = model.model_json_schema()
        for name, schema in root["properties"].items():
            types = types_of(schema, root)
            if len(types) > 1 and types != set(WORDS) and "x-unserved" not in schema:
                yield model, name, types


@pytest.mark.parametrize(("model", "field", "types"), [pytest.param(*each, id=each[1]) for each in unions()])
def test_every_type_that_a_field_may_have_is_told(model: type[Body], field: str, types: set[str]) -> None:
    wrong = [
        value
        for kind, value in OF_TYPE.items()
        if kind not in types and not (kind in ("integer", "number") and types & {"integer", "number"})
    ]
    assert wrong
    for value in wrong:
        body = {"messages": [USER], "max_tokens": 5, "prompt": "p", "query": "q", "documents": ["d"], field: value}
        with pytest.raises(ValidationError) as caught:
            model.model_validate(body)
        errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors() if field in each["loc"]]
        message, expected = describe_errors(errors, body)
        assert expected == field
        for kind in types:
            assert any(word in message for word in WORDS[kind]), (field, value, kind, message)


def test_fields_of_several_types_are_found() -> None:
    found = {field for _, field, _ in unions()}
    assert found >= {"stop", "prompt", "input", "system", "stop_sequences", "tool_choice", "early_stopping", "text_1"}


@pytest.mark.parametrize(
    ("model", "body", "param", "expected"),
    [
        (ChatCompletionRequest, {"messages": [USER], "stop": 5}, "stop", "must be a text or a list (got 5)"),
        (
            ChatCompletionRequest,
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0.content",
            "must be a text or a list (got 5)",
        ),
        (
            MessagesRequest,
            {"messages": [{"role": "user", "content": {}}], "max_tokens": 5},
            "messages.0.content",
            "must be a text or a list (got {})",
        ),
        (ResponsesRequest, {"input": [{"role": "user", "content": 5}]}, "input.0.content", "must be a text or a list"),
        (
            ResponsesRequest,
            {"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
            "input.0.output",
            "must be a text, a list or an object (got 5)",
        ),
        (
            ChatCompletionRequest,
            {"messages": [USER], "early_stopping": "always"},
            "early_stopping",
            "Input should be a valid boolean or 'never' (got 'always')",
        ),
        (
            RerankRequest,
            {"query": "q", "documents": [5]},
            "documents.0",
            "Input should be a valid string or an object (got 5)",
        ),
        (CompletionRequest, {"prompt": "p", "guided_json": 5}, "guided_json", "must be an object, or the text of one"),
    ],
)
def test_messages_of_fields_of_several_types(
    model: type[Body], body: dict[str, Any], param: str, expected: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    message, field = describe_errors([{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()], body)
    assert field == param
    assert message.startswith(f"{param}: {expected}"), message
