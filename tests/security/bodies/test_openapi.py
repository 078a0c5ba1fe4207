"""The engine answers as its OpenAPI document says."""

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

Check = Callable[..., bool | None]
CHECKS: list[Check] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
async def client(serve) -> AsyncIterator[httpx.AsyncClient]:  # type: ignore[no-untyped-def]
    async with serve() as server:
        yield server.client


@settings(suppress_health_check=list(HealthCheck), max_examples=150)
@given(data=st.data())
async def test_answers_are_what_the_document_promises(client: httpx.AsyncClient, data: st.DataObject) -> None:
    document = (await client.get("/openapi.json")).json()
    schema = schemathesis.openapi.from_dict(document)
    operation = data.draw(st.sampled_from([each.ok() for each in schema.get_all_operations()]))
    case = data.draw(operation.as_strategy())
    sent = case.as_transport_kwargs(base_url="http://engine")
    body = {"content": json.dumps(sent["json"]).encode()} if "json" in sent else {}
    answer = await client.request(sent["method"], sent["url"], headers=sent["headers"], **body)
    case.validate_response(answer, checks=find_checks(sent.get("json"), answer))


def find_checks(body: object, answer: httpx.Response) -> list[Check]:
    """All, but that 504 is no fault where ``body`` has a deadline, which a busy machine does not keep."""
    if answer.status_code != 504 or not (isinstance(body, dict) and "deadline_ms" in body):
        return CHECKS
    assert answer.json()["error"]["type"] in ("DeadlineExceededError", "timeout_error")
    return [check for check in CHECKS if check is not not_a_server_error]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_deadline_that_passed_is_answered_as_documented(serve: Any, path: str) -> None:
    """Each look at this clock finds a second more, as on a machine that has no time for the engine."""
    body = {"prompt": "up", "messages": [{"role": "user", "content": "up"}], "max_tokens": 2, "deadline_ms": 1}
    del body["messages" if path == "/v1/completions" else "prompt"]
    async with serve(clock=partial(next, count(1.0))) as server:
        schema = schemathesis.openapi.from_dict((await server.client.get("/openapi.json")).json())
        case = schema[path]["POST"].Case(body=body, media_type="application/json")
        answer = await server.client.post(path, json=body)
        assert answer.status_code == 504
        with pytest.raises(schemathesis.core.failures.FailureGroup):
            case.validate_response(answer, checks=CHECKS)
        case.validate_response(answer, checks=find_checks(body, answer))
        without = {name: value for name, value in body.items() if name != "deadline_ms"}
        assert find_checks(without, answer) == CHECKS


async def test_every_schema_has_a_public_name(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert not [name for name in schemas if not name.isalnum()]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
async def test_a_wrong_body_is_documented_as_it_is_answered(client: httpx.AsyncClient, path: str) -> None:
    documented = (await client.get("/openapi.json")).json()["paths"][path]["post"]["responses"]
    assert str((await client.post(path, json={})).status_code) in documented
    assert "422" not in documented
