"""One routing table of all shards: no row is lost while its fleet moves, or while its shard does not answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.operator.reconcile.world import FakeCluster, FakeEngine

from paternoster_contract.routing import ModelRoute
from paternoster_operator.cluster.port import Key
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow
from paternoster_operator.routes.shard_tables import MISSING_SECONDS, ShardTables
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def table(*names: str) -> PublishedTable:
    return PublishedTable([PublishedRow(name, Key("team", name), ModelRoute(fleet=f"of-{name}")) for name in names])


def test_a_row_that_no_shard_has_is_unread_for_a_moment() -> None:
    clock = Clock()
    tables = ShardTables(["http://other"], clock=clock)
    assert tables.merge(table("a", "b")).table.unread == []
    clock.now += MISSING_SECONDS - 1
    assert tables.merge(table("a")).table.unread == ["b"], "gateways would forget the fleet while it moves"
    clock.now += 1
    assert tables.merge(table("a")).table.unread == []
    assert [*tables.merge(table("a")).table.models] == ["a"]


def test_a_row_that_cannot_be_built_is_named_once() -> None:
    tables = ShardTables(["http://other"], clock=Clock())
    tables.merge(table("a"))
    found = tables.merge(PublishedTable([], [UnreadRow(["a"], Key("team", "a"))]))
    assert found.unread_names == ["a"]


def test_a_single_shards_table_is_its_own() -> None:
    own = table("a")
    assert ShardTables().merge(own) is own
    assert ShardTables().are_read


@asynccontextmanager
async def operator(document: Any, name: str, urls: Sequence[str] = ()) -> AsyncIterator[tuple[Operator, str, Any]]:
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://m", "servedName": name})
    cluster.shown_pods = [FakeEngine().pod(f"pod-of-{name}")]
    one = Operator(cluster, Settings(look_seconds=60), shard_urls=urls)
    server, port = await serve_app(build_app(one), "127.0.0.1", 0)
    try:
        yield one, f"http://127.0.0.1:{port}", server
    finally:
        await one.stop()
        await server.close()


async def read_names(url: str) -> list[str] | int:
    """Served names, or the status of another answer than a table."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/routes") as answer:
        return sorted((await answer.json())["models"]) if answer.status == 200 else answer.status


async def test_each_shards_operator_has_the_rows_of_all(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        operator(document, "theirs") as (other, other_url, server),
        operator(document, "ours", [other_url]) as (one, url, _),
    ):
        assert await read_names(url) == 503, "half a table would have gateways forget the others' fleets"
        other.synced = False
        (read,) = one.shard_tables._tables.items()
        await one.shard_tables._read(*read)
        assert await read_names(url) == 503
        other.synced = True
        await one.shard_tables._read(*read)
        assert await read_names(url) == ["ours", "theirs"]
        found = await one.routing_table()
        assert [each.name for each in found.models["theirs"].replicas] == ["lifts/pod-of-theirs"]
        rows = read[1].rows
        await one.shard_tables._read(*read)
        assert read[1].rows is rows, "a table that is as before is not sent again"
        await server.close()
        await one.shard_tables._read(*read)
        assert read[1].fault
        assert await read_names(url) == ["ours", "theirs"], "the last rows stand"


@pytest.mark.parametrize("body", [b"", b"?", b'{"rows": 2, "unread": []}\n', b'{"name": 1}\n{"rows": 1}\n'])
async def test_what_is_no_table_changes_nothing(document: Any, body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tables = ShardTables([f"http://127.0.0.1:{port}"])
    ((url, found),) = tables._tables.items()
    await tables._read(url, found)
    assert found.fault
    assert not tables.are_read
    await tables.close()
    server.close()
