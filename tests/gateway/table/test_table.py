"""The routing table is requested with a key, and used only if it is valid."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from tests.gateway.fakes import replace, serving

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import GATEWAY_TO_OPERATOR, derive_key
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.app import create_app
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.table import source as tables
from paternoster_gateway.table.source import TableSource


class Operator:
    """An operator's ``/routes``; with ``roots`` it answers none but gateways."""

    def __init__(self) -> None:
        self.text = naming("m")
        self.roots: list[str] = []
        self.headers: dict[str, str] = {}
        self.status = 200
        self.sent: list[str] = []
        self.url = ""

    async def routes(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "")
        self.sent.append(given)
        if self.roots and given not in [f"Bearer {derive_key(root, GATEWAY_TO_OPERATOR)}" for root in self.roots]:
            return web.Response(status=401)
        return web.Response(text=self.text, status=self.status, headers=self.headers)

    def serve(self, *models: str) -> None:
        """A table with these models."""
        self.text = naming(*models)


def naming(*models: str) -> str:
    """A table with these models."""
    return RoutingTable(models={model: ModelRoute() for model in models}).model_dump_json()


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    made, app = Operator(), web.Application()
    app.router.add_get("/routes", made.routes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/routes"
    yield made
    await runner.cleanup()


class Following:
    """A source that follows a table while in the block."""

    def __init__(self, location: str, roots: Path | None = None) -> None:
        keys = SentKeys(KeyFiles(roots) if roots else None, GATEWAY_TO_OPERATOR)
        self.source = TableSource(location, lambda _: None, keys)

    async def __aenter__(self) -> "Following":
        self._task = asyncio.create_task(self.source.follow_table())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not self._task.done(), "whatever it read, it goes on"
        self._task.cancel()

    async def until(self, *models: str) -> None:
        """The table has these models."""
        async with asyncio.timeout(20):
            while set(self.source.table.models) != set(models):
                await asyncio.sleep(0.02)


async def wait_for_requests(operator: Operator, times: int = 3) -> None:
    """Wait until ``operator`` got ``times`` more requests."""
    many = len(operator.sent) + times
    async with asyncio.timeout(20):
        while len(operator.sent) < many:
            await asyncio.sleep(0.02)


async def test_the_operator_gets_a_key_of_the_gateways_root(operator: Operator, roots: Path) -> None:
    operator.roots = ["first"]
    async with Following(operator.url, roots) as following:
        await following.until("m")
        assert operator.sent[0] == f"Bearer {derive_key('first', GATEWAY_TO_OPERATOR)}"
        operator.roots = ["second"]
        replace(roots, "first", "second")
        operator.serve("m", "n")
        await following.until("m", "n")
        replace(roots, "second")
        operator.serve("n")
        await following.until("n")


async def test_without_a_root_the_operator_gets_no_key(operator: Operator) -> None:
    async with Following(operator.url) as following:
        await following.until("m")
    assert operator.sent[0] == ""


async def test_a_gateway_that_the_operator_refuses_serves_the_last_table_and_logs_it_once(
    operator: Operator, roots: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Following(operator.url, roots) as following:
        await following.until("m")
        operator.roots = ["unknown"]
        operator.serve("n")
        await wait_for_requests(operator, 4)
        assert set(following.source.table.models) == {"m"}
        (message,) = caplog.messages
        assert message.endswith(
            "the gateway's key is refused (401): it is not of the operator's root key; going on with the last one"
        )
        operator.roots = ["first"]
        await following.until("n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"text": "{broken"}, "validation error"),
        ({"text": " " * 2**16}, "it is longer than 65535 bytes"),
        ({"status": 503}, "HTTP 503"),
        ({"status": 307, "headers": {"Location": "/elsewhere"}}, "HTTP 307"),
    ],
    ids=["broken", "long", "away", "elsewhere"],
)
async def test_an_invalid_answer_of_the_operator_leaves_the_table_as_it_is(
    operator: Operator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, object],
    words: str,
) -> None:
    monkeypatch.setattr(tables, "LONGEST_TABLE", 2**16 - 1)
    async with Following(operator.url) as following:
        await following.until("m")
        for name, value in fault.items():
            setattr(operator, name, value)
        await wait_for_requests(operator)
        assert set(following.source.table.models) == {"m"}
        assert [words in message for message in caplog.messages] == [True]
        operator.status = 200
        operator.serve("n")
        await following.until("n")


@pytest.mark.parametrize("content", ["{", " " * 2**16], ids=["broken", "long"])
async def test_an_invalid_file_leaves_the_table_as_it_is(
    table: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(tables, "LONGEST_TABLE", 2**16 - 1)
    replace(table, naming("m"))
    async with Following(str(table)) as following:
        await following.until("m")
        replace(table, content)
        while not caplog.messages:
            await asyncio.sleep(0.02)
        assert set(following.source.table.models) == {"m"}
        replace(table, naming("n"))
        await following.until("n")


async def test_a_gateway_without_a_table_asks_to_come_again(tmp_path: Path) -> None:
    """It cannot know which models there are."""
    file = tmp_path / "routes.json"
    async with serving(create_app(str(file))) as url, httpx.AsyncClient(base_url=url) as client:
        calls = [("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/v1/models/m")]
        for method, path in calls:
            answer = await client.request(method, path, json={"model": "m", "prompt": "Hi"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
            assert "routing table" in answer.json()["error"]["message"]
        replace(file, RoutingTable().model_dump_json())
        while (answer := await client.get("/v1/models")).status_code != 200:
            await asyncio.sleep(0.02)
        assert (await client.get("/v1/models/m")).status_code == 404
