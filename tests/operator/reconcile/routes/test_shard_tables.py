"""One routing table of all shards: no row is lost while its fleet moves, or while its shard does not answer."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest
from tests.operator.names.test_claims_of_fleets import ConfigMap
from tests.operator.reconcile.routes.test_routes_table import A, B, Fleets

from paternoster_contract.http import paths
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_rows import CONTENT_TYPE, End
from paternoster_operator import handlers, runtime
from paternoster_operator.cluster.buckets import Shard
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.record import Entry
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.routes import table as routes_table
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow
from paternoster_operator.routes.shard_tables import NEW_NAME_SECONDS, ShardTables
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

RECORDED = {Key("team", name): Entry(names=(name,)) for name in ("a", "b")}
GONE = RECORDED | {Key("team", "b"): Entry(names=("b",), gone_since=1)}


def table(*names: str, of: str = "of") -> PublishedTable:
    return PublishedTable([PublishedRow(name, Key("team", name), ModelRoute(fleet=f"{of}-{name}")) for name in names])


def test_a_row_that_no_shard_has_is_unread_for_as_long_as_its_fleet_has_its_name() -> None:
    tables = ShardTables(["http://other"])
    assert tables.merge(table("a", "b"), RECORDED).unread_names == []
    for _ in range(3):
        found = tables.merge(table("a"), RECORDED)
        assert found.unread_names == ["b"], "gateways would forget the fleet while it moves"
        assert found.table.models["b"].fleet == "of-b", "a gateway that has no row would answer 503"
    assert tables.merge(table("a"), GONE).table == table("a").table
    assert tables.merge(table("a"), RECORDED).table.models.keys() == {"a"}, "the row was of a fleet that is gone"


def test_a_row_whose_name_is_not_recorded_yet_stays_until_the_record_is_read_again() -> None:
    """The record of this operator is some seconds old: a shard that dies may have recorded its fleet since."""
    now = 0.0
    tables = ShardTables(["http://other"], clock=lambda: now)
    recorded = {Key("team", "a"): Entry(names=("a",))}
    assert tables.merge(table("a", "b"), recorded).unread_names == []
    now = NEW_NAME_SECONDS - 0.1
    found = tables.merge(table("a"), recorded)
    assert (found.unread_names, found.table.models.keys()) == (["b"], {"a", "b"})
    now = NEW_NAME_SECONDS
    assert tables.merge(table("a"), recorded).table == table("a").table


def test_the_last_row_of_another_namespaces_fleet_is_not_sent() -> None:
    tables = ShardTables(["http://other"])
    tables.merge(table("b"), RECORDED)
    found = tables.merge(table(), {Key("thieves", "b"): Entry(names=("b",))})
    assert (found.table.models, found.unread_names) == ({}, ["b"])


def test_a_row_that_cannot_be_built_is_named_once() -> None:
    tables = ShardTables(["http://other"])
    tables.merge(table("a"), RECORDED)
    found = tables.merge(PublishedTable([], [UnreadRow(["a"], Key("team", "a"))]), RECORDED)
    assert found.unread_names == ["a", "b"]
    assert found.table.models.keys() == {"a"}


def test_a_single_shards_table_is_its_own() -> None:
    own = table("a")
    assert ShardTables().merge(own, RECORDED) is own
    assert ShardTables().are_read


class Published(ConfigMap):
    """The record of names, and the copy of the routing table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Mapping[str, ModelRoute] = {}
        self.copy_fault: ClusterError | None = None

    async def read_published_routes(self) -> Mapping[str, ModelRoute]:
        if self.copy_fault is not None:
            raise self.copy_fault
        return self.rows


class Server:
    """An operator of one shard that listens."""

    def __init__(self, operator: Operator, http: Any, port: int) -> None:
        self.operator, self.http, self.url = operator, http, f"http://127.0.0.1:{port}"

    @property
    def tables(self) -> ShardTables:
        return self.operator.shard_tables

    async def read_others(self) -> None:
        """Ask the other shards, and the record of names."""
        await self.operator._directory._follow_once(acting=True)
        await self.tables._read_all()

    async def read_names(self) -> list[str] | int:
        """Served names as a gateway up to 0.2 gets them, or the status of another answer than a table."""
        async with aiohttp.ClientSession() as session, session.get(self.url + paths.ROUTES) as answer:
            return sorted((await answer.json())["models"]) if answer.status == 200 else answer.status

    async def read_end(self, path: str) -> End:
        headers = {"Accept": CONTENT_TYPE}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as answer:
            assert answer.status == 200
            return End.model_validate_json((await answer.read()).splitlines()[-1])


@asynccontextmanager
async def shard(fleets: Fleets, key: Key, published: Published, urls: Sequence[str] = ()) -> AsyncIterator[Server]:
    """The operator that has the fleet ``key``, one of ``fleets``."""

    def is_own(other: Key) -> bool:
        return other == key

    async def read_fleet(other: Key) -> Any:
        return part.documents.get(other)

    part = copy.copy(fleets)
    part.documents = {key: fleets.documents[key]}
    own: Any = SimpleNamespace(owns=is_own, sees_all=is_own, read_fleet=read_fleet, find_token=lambda _: None)
    operator = Operator(part, Settings(look_seconds=60), published, ownership=own, shard_urls=urls)
    http, port = await serve_app(build_app(operator), "127.0.0.1", 0)
    server = Server(operator, http, port)
    try:
        await operator._directory._follow_once(acting=True)
        yield server
    finally:
        await operator.stop()
        await http.close()


@pytest.fixture
def fleets(document: Any) -> Fleets:
    return Fleets(document, "ab")


async def test_each_shards_operator_has_the_rows_of_all(fleets: Fleets) -> None:
    published = Published()
    async with shard(fleets, B, published) as other, shard(fleets, A, published, [other.url]) as one:
        published.copy_fault = ClusterError("away")
        assert await one.read_names() == 503, "half a table would have gateways forget the others' fleets"
        other.operator.synced = False
        await one.read_others()
        assert await one.read_names() == 503
        other.operator.synced = True
        await one.read_others()
        assert await one.read_names() == ["a", "b"]
        found = await one.operator.routing_table()
        assert [each.name for each in found.models["b"].replicas] == ["of-b/b-0"]
        ((_, read),) = one.tables._tables.items()
        rows = read.rows
        await one.read_others()
        assert read.rows is rows, "a table that is as before is not sent again"
        await other.http.close()
        await one.read_others()
        assert (await one.read_end(paths.ROUTES)).unread == ["b"], "a gateway may have a newer row"
        assert await one.read_names() == ["a", "b"], "the last rows stand"


async def test_pods_of_another_number_of_shards_take_no_row_away(fleets: Fleets) -> None:
    """The Service of a shard has pods of both while the chart is upgraded, and buckets move."""
    published = Published()
    async with shard(fleets, B, published) as other, shard(fleets, A, published, [other.url]) as one:
        await one.read_others()
        assert await one.read_names() == ["a", "b"]
        other.operator._cluster.documents.clear()  # type: ignore[attr-defined]  # its bucket is another pod's
        await one.read_others()
        end = await one.read_end(paths.ROUTES)
        assert (end.rows, end.unread) == (2, ["b"])


async def test_an_operator_that_starts_beside_a_dead_shard_sends_the_rows_of_the_copy(fleets: Fleets) -> None:
    published = Published()
    async with shard(fleets, B, published) as other, shard(fleets, A, published, [other.url]) as earlier:
        await earlier.read_others()
        published.rows = (await earlier.operator.routing_table()).models
        await other.http.close()
        async with shard(fleets, A, published, [other.url]) as one:
            published.copy_fault = ClusterError("away")
            await one.read_others()
            assert await one.read_names() == 503, "what the copy has is not known yet"
            published.copy_fault = None
            await one.read_others()
            assert await one.read_names() == ["a", "b"]
            assert (await one.operator.routing_table()).models["b"] == published.rows["b"]
            assert (await one.read_end(paths.ROUTES)).unread == ["b"]
            assert one.operator.metrics.registry.get_sample_value("paternoster_operator_shards_unread") == 1


async def test_without_a_copy_a_dead_shards_names_are_unread(fleets: Fleets) -> None:
    """A gateway answers 503 for them then, and not 404; and the other shards' fleets have their routes."""
    published = Published()
    async with shard(fleets, B, published), shard(fleets, A, published, ["http://127.0.0.1:1"]) as one:
        await one.read_others()
        end = await one.read_end(paths.ROUTES)
        assert (end.rows, end.unread) == (1, ["b"])
        assert await one.read_names() == 503, "a gateway up to 0.2 would forget it"


async def test_what_a_shard_sends_is_shared_out_by_namespace(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    published = Published()
    async with shard(fleets, B, published) as other, shard(fleets, A, published, [other.url]) as one:
        await one.read_others()
        size = len((await other.operator.routes.build_own()).rows[0].line)
        monkeypatch.setattr(routes_table, "MOST_BYTES", size - 1)
        end = await other.read_end(paths.SHARD_ROUTES)
        assert (end.rows, end.left_out) == (0, ["b"])
        monkeypatch.setattr(routes_table, "MOST_BYTES", 2 * size)
        monkeypatch.setattr(other.operator.routes, "build_for_shards", build_beyond(other.operator, size - 1))
        await one.read_others()
        end = await one.read_end(paths.ROUTES)
        assert (end.rows, end.unread, end.left_out) == (1, [], []), "a row beyond its share is not unread"


def build_beyond(operator: Operator, capacity: int) -> Any:
    async def build() -> PublishedTable:
        return (await operator.routes.build_own()).for_shards(capacity)

    return build


async def test_a_fleet_of_any_shard_learns_that_the_table_is_full(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gateway asks the operator that leads its shard."""
    monkeypatch.setattr(runtime, "ROUTES_SECONDS", 0.01)
    published = Published()
    async with shard(fleets, A, published) as other, shard(fleets, B, published, [other.url]) as one:
        await one.read_others()
        monkeypatch.setattr(routes_table, "MOST_BYTES", 1)
        one.operator.start()
        memo = kopf.Memo(
            operator=one.operator, ownership=None, bucket_labels=None, leading=[], shard=Shard(1, 2), cluster=None,
            routes_secret=Key("system", "routes"),
        )  # fmt: skip
        handlers.lead_operators(memo)
        async with asyncio.timeout(20):
            while one.operator.routes.published.left_out.get(B) is None:
                await asyncio.sleep(0.01)
        await handlers.stop_leading(memo)


@pytest.mark.parametrize("body", [b"", b"?", b'{"rows": 2, "unread": []}\n', b'{"name": 1}\n{"rows": 1}\n'])
async def test_what_is_no_table_changes_nothing(body: bytes) -> None:
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
    assert tables.num_unread == 1
    await tables.close()
    server.close()
