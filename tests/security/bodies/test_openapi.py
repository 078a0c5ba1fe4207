"""The engine answers as its OpenAPI document says."""

import json
from collections.abc import AsyncIterator

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

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


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
    case.validate_response(answer, checks=CHECKS)


async def test_every_schema_has_a_public_name(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert not [name for name in schemas if not name.isalnum()]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
async def test_a_wrong_body_is_documented_as_it_is_answered(client: httpx.AsyncClient, path: str) -> None:
    documented = (await client.get("/openapi.json")).json()["paths"][path]["post"]["responses"]
    assert str((await client.post(path, json={})).status_code) in documented
    assert "422" not in documented
