"""Answers of the deployed gateway: each header once, an id in all, and the same for every spelling of a path."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from paternoster_e2e.fleet import Fleet

pytestmark = pytest.mark.timeout(600)

ID = "X-Request-Id"
MORE_THAN_A_BODY = 2**22 + 1
"""Bytes: what ``gateway.limits.maxBodyBytes`` is by default, and one."""
CHAT_FIELDS: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture
def client(gateway: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway, timeout=150, follow_redirects=False) as client:
        yield client


def headers_once(answer: httpx.Response, sent: str = "") -> None:
    """Every header once; an id, which is the one that was ``sent``; on Anthropic's paths its name for it as well."""
    names = Counter(name.lower() for name, _ in answer.headers.multi_items())
    assert {name for name, count in names.items() if count > 1} == set(), answer.headers
    assert names["date"] == 1
    found = answer.headers[ID]
    assert found == (sent or found) != ""
    anthropic = answer.request.url.path.startswith("/v1/messages")
    assert answer.headers.get("request-id") == (found if anthropic else None)


@pytest.mark.parametrize("origin", ["", "page", "another"])
@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/v1/chat/completions", {}, 200),
        ("/v1/chat/completions", {"stream": True}, 200),
        ("/v1/chat/completions", {"temperature": -1}, 400),
        ("/v1/chat/completions", {"model": "nowhere"}, 404),
        ("/v1/messages", {}, 200),
        ("/v1/messages", {"stream": True}, 200),
        ("/v1/messages", {"max_tokens": "two"}, 400),
        ("/v1/messages", {"model": "nowhere"}, 404),
        ("/v1/messages/count_tokens", {}, 200),
        ("/v1/nothing", {}, 404),
    ],
)
def test_each_header_comes_once(
    client: httpx.Client, fleet: Fleet, page: str, path: str, fields: dict[str, Any], status: int, origin: str
) -> None:
    body = {"model": fleet.name, **CHAT_FIELDS, **fields}
    request_headers = {"": {}, "page": {"Origin": page}, "another": {"Origin": "https://another.example"}}[origin]
    answer = client.post(path, json=body, headers=request_headers)
    assert answer.status_code == status, answer.text
    headers_once(answer)
    assert answer.headers.get("Access-Control-Allow-Origin") == (page if origin == "page" else None)
    headers_once(client.post(path, json=body, headers=request_headers | {ID: "mine"}), "mine")


def test_a_refusal_before_the_request_is_whole_has_an_id(client: httpx.Client, fleet: Fleet) -> None:
    for path in ("/v1/chat/completions", "/v1/messages"):
        answer = client.post(path, content=b"x" * MORE_THAN_A_BODY, headers={ID: "mine"})
        assert answer.status_code == 413, answer.text
        headers_once(answer, "mine")


def test_head_is_answered_where_get_is(client: httpx.Client, fleet: Fleet) -> None:
    for path in ("/health", "/ready", "/v1/models", f"/v1/models/{fleet.name}", "/v1/models/"):
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        headers_once(head)
    refused = client.head("/v1/chat/completions")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")


def test_a_slash_at_a_paths_end_is_no_redirect(client: httpx.Client, fleet: Fleet) -> None:
    for path in ("/v1/chat/completions/", "/v1/messages/", "//v1/chat/completions"):
        answer = client.post(
            httpx.URL(str(client.base_url).rstrip("/") + path), json={"model": fleet.name, **CHAT_FIELDS}
        )
        assert answer.status_code == 200, answer.text
        headers_once(answer)
    assert client.get("/v1/models/").json() == client.get("/v1/models").json()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models"])
def test_a_page_of_a_configured_origin_may_call(client: httpx.Client, page: str, path: str) -> None:
    """A browser asks beforehand without a key, for the headers that both official clients send."""
    request_headers = {
        "Access-Control-Request-Method": "GET" if path == "/v1/models" else "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-api-key,anthropic-version,x-stainless-os",
    }
    allowed = client.options(path, headers=request_headers | {"Origin": page})
    assert allowed.status_code == 200, allowed.text
    assert allowed.headers["Access-Control-Allow-Origin"] == page
    assert request_headers["Access-Control-Request-Method"] in allowed.headers["Access-Control-Allow-Methods"]
    names = {name.strip() for name in allowed.headers["Access-Control-Allow-Headers"].lower().split(",")}
    assert set(request_headers["Access-Control-Request-Headers"].split(",")) <= names
    headers_once(allowed)
    refused = client.options(path, headers=request_headers | {"Origin": "https://another.example"})
    assert (refused.status_code, "Access-Control-Allow-Origin" in refused.headers) == (400, False)


def test_a_model_has_its_age_and_what_its_engine_reports(client: httpx.Client, fleet: Fleet) -> None:
    made = datetime.fromisoformat(fleet.get()["metadata"]["creationTimestamp"]).timestamp()
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["created"]) == (fleet.name, int(made))
    engine = json.loads(fleet.engine_answer("/stats"))
    defaults = {name: value for name, value in engine["default_parameters"].items() if value is not None}
    assert (card["max_model_len"], card["default_parameters"]) == (engine["max_model_len"], defaults)
    assert client.get(f"/v1/models/{fleet.name}").json() == card
