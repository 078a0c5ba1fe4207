"""``HEAD`` and slashes that say nothing: answered as the route that is meant, and never by a redirect."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_contract.http.routes import ROUTES, AtGateway, Kind
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.app import create_app
from paternoster_http.request_line import canonical_path

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
ANSWERED = [route.path for route in ROUTES if route.gateway is AtGateway.ANSWERS]
FORWARDED = [route.path for route in ROUTES if route.gateway is AtGateway.FORWARDS]


@given(st.lists(st.text("ab/", max_size=3), max_size=6).map("/".join))
def test_a_path_keeps_its_parts(path: str) -> None:
    canonical = canonical_path(f"/{path}")
    assert canonical.split("/")[1:] == ([part for part in path.split("/") if part] or [""])
    assert canonical_path(canonical) == canonical


async def test_forwarded_routes_accept_repeated_slashes(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", answer)
    door.publish(engine)
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for path in FORWARDED:
        for spelled in (f"{path}/", path.replace("/", "//"), f"{path}//"):
            url, body = door.url + spelled, {"model": "m"}
            async with client.post(url, json=body, allow_redirects=False) as response:
                assert (response.status, await response.json()) == (200, {"from": "a"}), spelled
    assert set(engine.paths) == set(FORWARDED), "engines see one spelling"


@pytest.mark.parametrize("path", ANSWERED)
async def test_head_is_answered_as_get_without_a_body(client: aiohttp.ClientSession, door: Door, path: str) -> None:
    door.publish()
    await until(lambda: stats(client, door), lambda models: "m" in models)
    url = door.url + path.replace("{model:path}", "m")
    for spelled in (url, f"{url}/"):
        async with client.get(spelled, allow_redirects=False) as whole:
            assert whole.status == 200
            size = len(await whole.read())
        async with client.head(spelled, allow_redirects=False) as head:
            assert head.status == 200
            assert head.headers["Content-Type" if size else "Content-Length"] == (
                whole.headers["Content-Type"] if size else "0"
            )
            if "metrics" not in path and "stats" not in path:  # their numbers change, and so may their length
                assert head.headers["Content-Length"] == str(size)
            assert await head.read() == b""


async def test_head_on_a_route_with_post_is_405(client: aiohttp.ClientSession, door: Door) -> None:
    for path in FORWARDED:
        async with client.head(door.url + path, allow_redirects=False) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_no_spelling_of_a_path_opens_a_route_of_another_port(table: Path) -> None:
    app = create_app(str(table), stats_port=9)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as asking:
        for path in (route.path for route in ROUTES if route.kind is Kind.NUMBERS):
            for spelled in (path, f"{path}/", f"/{path}", f"{path}//"):
                for method in ("GET", "HEAD"):
                    assert (await asking.request(method, f"http://gateway{spelled}")).status_code == 404
