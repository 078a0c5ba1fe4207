"""A gateway that starts while no operator is there serves from the last table's copy, and says how old it is."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.gateway.fakes import Door, answer, route, serving, until

from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_copy import RoutingCopy
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.app import create_app

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
AGE = 500.0


def write_copy(file: Path, *engines: FakeEngine, age: float = AGE) -> None:
    """At once, as a kubelet does."""
    table = RoutingTable(models={"m": route(*engines)})
    new = file.with_name("new")
    new.write_bytes(RoutingCopy(written_at=time.time() - age, table=table).pack())
    new.replace(file)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "routes.json.gz"


@pytest.fixture
async def orphan(tmp_path: Path, copy: Path) -> AsyncIterator[Door]:
    """A gateway whose table is not there."""
    missing = tmp_path / "no-operator.json"
    async with serving(create_app(str(missing), last_routes=copy)) as url:
        yield Door(url, missing)


async def ready(client: aiohttp.ClientSession, door: Door) -> tuple[int, dict[str, Any]]:
    async with client.get(f"{door.url}/ready") as response:
        return response.status, await response.json()


async def send_request(client: aiohttp.ClientSession, door: Door) -> tuple[int, object]:
    async with client.post(f"{door.url}/v1/completions", json={"model": "m", "prompt": "up"}) as response:
        return response.status, await response.json()


async def metric(client: aiohttp.ClientSession, door: Door, name: str) -> float:
    async with client.get(f"{door.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"paternoster_gateway_routing_table_{name} ")]
    return float(value)


async def test_a_gateway_serves_from_the_copy_until_the_operator_answers(
    client: aiohttp.ClientSession, copy: Path, orphan: Door, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = await start("old", answer), await start("new", answer)
    status, body = await ready(client, orphan)
    assert (status, body["routing_table"]) == (503, {"from": "none", "age_seconds": None})
    write_copy(copy, old)
    status, body = await until(lambda: ready(client, orphan), lambda seen: seen[0] == 200)
    assert body["routing_table"]["from"] == "copy"
    assert body["routing_table"]["age_seconds"] >= AGE
    assert await metric(client, orphan, "age_seconds") >= AGE
    assert await metric(client, orphan, "from_copy") == 1
    assert "no operator answers: serving from the copy of its routing table of " in caplog.text
    assert await send_request(client, orphan) == (200, {"from": "old"})

    orphan.publish(new)
    status, body = await until(lambda: ready(client, orphan), lambda seen: seen[1]["routing_table"]["from"] != "copy")
    assert (status, body["routing_table"]["from"]) == (200, "operator")
    assert body["routing_table"]["age_seconds"] < AGE
    assert await metric(client, orphan, "from_copy") == 0
    assert await send_request(client, orphan) == (200, {"from": "new"})

    # The operator's last table is newer than any copy.
    orphan.table.unlink()
    write_copy(copy, old, age=0)
    await asyncio.sleep(1.2)
    assert await send_request(client, orphan) == (200, {"from": "new"})


async def test_a_newer_copy_is_read_while_no_operator_answers(
    client: aiohttp.ClientSession, copy: Path, orphan: Door, start: Start
) -> None:
    write_copy(copy, await start("old", answer))
    await until(lambda: ready(client, orphan), lambda seen: seen[0] == 200)
    write_copy(copy, await start("new", answer), age=0)
    await until(lambda: send_request(client, orphan), lambda got: got == (200, {"from": "new"}))


async def test_an_invalid_copy_is_logged_once_and_serves_no_model(
    client: aiohttp.ClientSession, copy: Path, orphan: Door, caplog: pytest.LogCaptureFixture
) -> None:
    copy.write_bytes(b"hostile")  # noqa: ASYNC240 - a few bytes
    await until(lambda: asyncio.sleep(0, caplog.text), lambda text: "is not gzip" in text)
    await asyncio.sleep(1.2)
    assert caplog.text.count("is not gzip") == 1
    assert (await ready(client, orphan))[0] == 503


async def test_a_gateway_that_has_its_operator_reads_no_copy(
    client: aiohttp.ClientSession, table: Path, copy: Path, start: Start
) -> None:
    write_copy(copy, await start("old", answer), age=0)
    Door("", table).publish(await start("new", answer))
    async with serving(create_app(str(table), last_routes=copy)) as url:
        door = Door(url, table)
        _, body = await until(lambda: ready(client, door), lambda seen: seen[0] == 200)
        assert body["routing_table"]["from"] == "operator"
        assert await send_request(client, door) == (200, {"from": "new"})
