"""What is wrong with a body is the client's 400 that names the field, and the OpenAPI document says so."""

import json
from typing import Any

import pytest

LONE = '"\\ud800"'
USER = {"role": "user", "content": "x"}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.mark.parametrize("path", [TEXT, CHAT, "/tokenize", "/detokenize"])
async def test_lone_surrogates_are_refused_in_every_field(serve: Any, path: str) -> None:
    good = {
        TEXT: {"prompt": "x"},
        CHAT: {"messages": [USER]},
        "/tokenize": {"prompt": "x"},
        "/detokenize": {"tokens": []},
    }
    async with serve() as server:
        document = (await server.client.get("/openapi.json")).json()
        reference = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        fields = document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
        for field in fields:
            body = json.dumps(good[path] | {field: "LONE"}).replace('"LONE"', LONE)
            response = await server.client.post(path, content=body, headers={"content-type": "application/json"})
            assert response.status_code == 400, (field, response.text)
            assert str(response.json()["error"]["param"]).startswith(field)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (TEXT, '{"prompt": ["x", LONE]}', "prompt"),
        (TEXT, '{"prompt": "x", "stop": ["x", LONE]}', "stop.1"),
        (TEXT, '{"prompt": "x", "model": "a\\udfff"}', "model"),
        (CHAT, '{"messages": [{"role": "user", "content": "x\\ud83dx"}]}', "messages.0.content"),
        (CHAT, '{"messages": [{"role": "user", "content": "x", "name": LONE}]}', "messages.0.name"),
        (CHAT, '{"messages": [{"role": LONE, "content": "x"}]}', "messages.0.role"),
        ("/tokenize", '{"messages": [{"role": "user", "content": LONE}]}', "messages.0.content"),
        (CHAT, '{"messages": [{"role": "user", "content": "x"}], "metadata": {LONE: LONE}}', "metadata"),
        (CHAT, '{"messages": [{"role": "user", "content": "x"}], "documents": [{"a": [LONE]}]}', "documents.0"),
        (
            CHAT,
            '{"chat_template_kwargs": {LONE: 1}, "messages": [{"role": "user", "content": "x"}]}',
            "chat_template_kwargs",
        ),
    ],
)
async def test_lone_surrogates_within(serve: Any, path: str, body: str, param: str | None) -> None:
    async with serve() as server:
        content = body.replace("LONE", LONE)
        response = await server.client.post(path, content=content, headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
async def test_deep_json_is_400_at_every_depth(serve: Any, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    async with serve() as server:
        for depth in (10, 500, *range(800, 1000, 3), 5_000, 100_000):
            value = opening * depth + "1" + closing * depth
            for path, field in ((CHAT, "metadata"), (TEXT, "prompt"), (TEXT, "stop"), (TEXT, "unknown")):
                content = json.dumps({"messages": [USER], field: "DEEP"}).replace('"DEEP"', value)
                headers = {"content-type": "application/json"}
                response = await server.client.post(path, content=content, headers=headers)
                assert response.status_code == 400, (depth, field)
                assert len(response.content) < 2000
        assert response.json()["error"]["message"] == "The body is nested deeper than 200 arrays and objects"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "\xff"}', "The body is not UTF-8"),
        (b'{"prompt": [%s]}' % (b"9" * 1001), "The body has a number of more than 1000 digits"),
        (b'{"prompt": [%s]}' % (b"9" * 1000), "prompt: token id 99999999999999999999... must be below"),
    ],
)
async def test_what_no_parser_takes(serve: Any, content: bytes, message: str) -> None:
    async with serve() as server:
        response = await server.client.post(TEXT, content=content, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": None}], "messages.0.content"),
        ([{"role": "user", "content": []}], "messages.0.content"),
        ([USER, {"role": "system"}], "messages.1.content"),
        ([{"role": "tool"}], "messages.0.tool_call_id"),
        ([{"role": "tool", "content": "4"}], "messages.0.tool_call_id"),
        ([{"role": "tool", "content": "4", "tool_call_id": "a"}], "messages"),
        ([USER, {"role": "tool", "content": "4", "tool_call_id": "a"}], "messages"),
        ([USER | {"tool_call_id": "a"}], "messages.0.tool_call_id"),
    ],
)
async def test_messages_that_are_none(serve: Any, messages: list[dict[str, Any]], param: str) -> None:
    async with serve() as server:
        for path in (CHAT, "/tokenize"):
            response = await server.client.post(path, json={"messages": messages})
            assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_messages_that_are_fine(serve: Any) -> None:
    answer = {"role": "assistant", "content": None}
    async with serve() as server:
        for messages in (
            [USER | {"content": ""}],
            [USER, answer, USER],
            [USER, answer, {"role": "tool", "content": "4", "tool_call_id": "a"}],
        ):
            assert (await server.client.post(CHAT, json={"messages": messages, "max_tokens": 1})).status_code == 200


async def test_openapi_tells_the_statuses_that_are_sent(serve: Any) -> None:
    async with serve() as server:
        for client in (server.client, server.admin):
            document = (await client.get("/openapi.json")).json()
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    assert "422" not in operation["responses"]
                    if path.startswith(("/v1", "/v2", "/tokenize", "/detokenize", "/admin")):
                        assert {"400", "401", "413", "429", "503", "default"} <= set(operation["responses"])
                        schema = operation["responses"]["400"]["content"]["application/json"]["schema"]
                        forms = {"/v1/messages": "/ErrorEvent", "/v2/": "/CohereError"}
                        form = next((form for start, form in forms.items() if path.startswith(start)), "/ErrorBody")
                        assert schema["$ref"].endswith(form)
            assert not any("ValidationError" in name for name in document["components"]["schemas"])
        error = (await server.client.post(TEXT, json={})).json()["error"]
        assert set(error) == set(document["components"]["schemas"]["ErrorObject"]["properties"])
