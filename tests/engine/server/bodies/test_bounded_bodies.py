"""Whatever a body is, its route reads a bounded number of its parts, and says which bound it breaks."""

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError

from hostile.bodies import EVERY, SHAPES, HostileBody
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.bodies import body_route
from paternoster_engine.server.bodies.body_route import BodyRoute
from paternoster_engine.server.bodies.invalid_fields import describe_errors, format_value
from paternoster_engine.server.errors import MAX_SHOWN
from paternoster_engine.server.openai.fields import counts
from paternoster_engine.server.openai.fields.counts import MAX_FREE_VALUES, MAX_OBJECTS
from paternoster_engine.server.openai.messages import arguments_object
from paternoster_engine.server.state import ServerState
from paternoster_http.json_bounds import MAX_VALUES, JsonTooLarge, bounded_json

CHAT = "/v1/chat/completions"
MOST_ERRORS = 64
"""One for each of the fields of an object, and no more than one item of each list."""


def _routes_with_bodies(app: FastAPI) -> list[APIRoute]:
    routers = [route.original_router for route in app.routes if hasattr(route, "original_router")]
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return [route for route in routes if route.body_field is not None]


@pytest.fixture(scope="module")
def models() -> Mapping[str, Any]:
    """The type of each route's body."""
    routes = _routes_with_bodies(create_app(ServerState()))
    return {route.path: route.body_field.field_info.annotation for route in routes if route.body_field is not None}


def test_every_route_reads_its_body_within_the_bounds() -> None:
    for app in (create_app(ServerState()), create_admin_app(ServerState())):
        routes = _routes_with_bodies(app)
        assert routes
        assert all(isinstance(route, BodyRoute) for route in routes)


@pytest.mark.parametrize("body", SHAPES, ids=lambda body: f"{body.path} {body.name}")
def test_parts_and_errors_are_bounded(
    body: HostileBody, models: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds that small bodies reach."""
    monkeypatch.setattr(counts, "MAX_OBJECTS", 100)
    monkeypatch.setattr(counts, "MAX_FREE_VALUES", 1000)
    errors, counted, too_large = _read(body.of_size(12_000 + 2 * len(body.item)), models[body.path])
    assert errors <= MOST_ERRORS
    assert too_large or counted.objects <= 100
    assert too_large or counted.free_values <= 1000


def test_errors_are_bounded_whatever_a_field_holds(models: Mapping[str, Any]) -> None:
    most = max(_read(body.of_size(4000), models[body.path])[0] for body in EVERY if len(body.item) < 1000)
    assert 1 <= most <= MOST_ERRORS


def _read(data: bytes, model: Any) -> tuple[int, counts.Counts, bool]:
    """How many errors there are, what was counted, and whether that was too much, of which nothing more was read."""
    counts._counts.set(counts.Counts(in_progress=False))
    errors, too_large = 0, False
    try:
        document = bounded_json(data)
        model.model_validate(document)
    except ValidationError as error:
        errors = error.error_count()
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
        assert len(describe_errors(found, document)[0]) < 20_000
    except JsonTooLarge:
        too_large = True
    except ValueError:
        assert b"seed" in data or b'"f":' in data
    counted = counts.find_counts()
    assert counted is not None
    return errors, counted, too_large


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"unknown": [0] * MAX_VALUES}, f"more than {MAX_VALUES} values and names"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 1000}] * 9},
            f"more than {MAX_OBJECTS} messages, parts, items, calls and tools together",
        ),
        ({"documents": [{"a": [0] * MAX_FREE_VALUES}]}, f"more than {MAX_FREE_VALUES} values and names in schemas"),
        ({"guided_json": '{"items":' * 201}, "the schema is nested deeper than 200 arrays and objects"),
        ({"guided_json": {"enum": [0] * MAX_FREE_VALUES}}, f"more than {MAX_FREE_VALUES} values and names in schemas"),
    ],
)
async def test_the_answer_names_the_bound(serve: Any, fields: Mapping[str, Any], expected: str) -> None:
    async with serve() as server:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1} | fields
        response = await server.client.post(CHAT, json=body)
        assert response.status_code == 400
        assert expected in response.json()["error"]["message"]


async def test_arguments_of_calls_count_as_any_json(serve: Any) -> None:
    arguments = json.dumps({"a": [0] * (MAX_FREE_VALUES // 2)})
    calls = [{"id": str(i), "type": "function", "function": {"name": "f", "arguments": arguments}} for i in range(3)]
    body = {"messages": [{"role": "assistant", "tool_calls": calls}, {"role": "user", "content": "a"}]}
    async with serve() as server:
        response = await server.client.post(CHAT, json=body)
        assert response.status_code == 400
        assert f"more than {MAX_FREE_VALUES} values and names in schemas, arguments" in response.text


async def test_messages_are_told_in_their_own_form(serve: Any) -> None:
    async with serve() as server:
        body = {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "unknown": [0] * MAX_VALUES}
        response = await server.client.post("/v1/messages", json=body)
        assert (response.status_code, response.json()["type"]) == (400, "error")
        assert f"more than {MAX_VALUES} values and names" in response.json()["error"]["message"]


async def test_bodies_that_are_used_fit(serve: Any, models: Mapping[str, Any]) -> None:
    """Lists of token ids, long conversations, large sets of tools."""
    properties = {f"p{i}": {"type": "string", "description": "one of its parts"} for i in range(40)}
    function = {"parameters": {"type": "object", "properties": properties, "required": list(properties)}}
    tools = [{"type": "function", "function": {"name": f"f{i}"} | function} for i in range(128)]
    call = {"type": "function", "function": {"name": "f1", "arguments": '{"p1": "a"}'}}
    turns = [
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}] * 2},
            {"role": "assistant", "tool_calls": [{"id": str(i)} | call]},
            {"role": "tool", "tool_call_id": str(i), "content": "b"},
        ]
        for i in range(500)
    ]
    models[CHAT].model_validate({"messages": [message for turn in turns for message in turn], "tools": tools})
    blocks = [{"type": "text", "text": "a"}] * 4
    conversation = [{"role": role, "content": blocks} for _, role in product(range(500), ("user", "assistant"))]
    models["/v1/messages"].model_validate({"max_tokens": 1, "messages": [*conversation, conversation[0]]})
    models["/v1/completions"].model_validate(bounded_json(json.dumps({"prompt": [1] * 131_072}).encode()))
    texts = [[1] * 146] * 2048
    models["/v1/embeddings"].model_validate(bounded_json(json.dumps({"input": texts}).encode()))


async def test_a_large_body_waits_for_its_tenants_share(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    begin = body_route.ReadingShares.wait_turn

    async def seen(self: Any, tenant: str) -> Any:
        begun.append(tenant)
        return await begin(self, tenant)

    monkeypatch.setattr(body_route.ReadingShares, "wait_turn", seen)
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    async with serve() as server:
        await server.client.post(CHAT, json=body)
        assert not begun
        response = await server.client.post(CHAT, json=body | {"unknown": [0] * 2000})
        assert (response.status_code, begun) == (200, [""])


@pytest.mark.parametrize("value", [[[0] * 10**5] * 3, {"a": {str(i): i for i in range(10**5)}}, ["a" * 10**6] * 9])
def test_little_is_made_of_a_value_that_is_shown(value: Any) -> None:
    assert len(format_value(value)) <= MAX_SHOWN + len("...")
    assert format_value([1, "a", {"b": None}]) == "[1, 'a', {'b': None}]"


def test_what_the_model_writes_does_not_count_as_the_clients() -> None:
    with counts.collect_counts():
        counts.count_free_values(MAX_FREE_VALUES)
    assert arguments_object('{"a": [1, 2]}') == {"a": [1, 2]}
    with pytest.raises(JsonTooLarge):
        arguments_object('{"a": [1, 2]}', counts.count_free_values)


async def test_an_admin_body_of_many_values_is_refused_for_what_it_is(serve: Any) -> None:
    async with serve() as server:
        response = await server.admin.patch("/admin/config", json={"live_cap": [0] * 2000})
        assert response.status_code == 400
