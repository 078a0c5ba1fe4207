"""The copy of the routing table is written when the table changes, and from time to time when it does not."""

from collections.abc import Sequence

import pytest

from paternoster_contract.access.keys import digest_key
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_copy import CONFIRM_SECONDS, RoutingCopy
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.routes.copy_secret import RoutesSecret
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow


class World:
    """A table, a clock, and what was written."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.table: PublishedTable | None = naming("m")
        self.written: list[RoutingCopy] = []
        self.reported_writes: list[tuple[float, int]] = []
        self.fault: ClusterError | None = None
        self.secret = RoutesSecret(
            self._table, self._write, lambda at, size: self.reported_writes.append((at, size)), clock=lambda: self.now
        )

    async def _table(self) -> PublishedTable | None:
        return self.table

    async def _write(self, packed: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.written.append(RoutingCopy.unpack(packed))

    async def copy_once(self, seconds: float = 0) -> bool:
        self.now += seconds
        return await self.secret.write_if_due()


def naming(*models: str, unread: Sequence[str] = (), fleet: str = "") -> PublishedTable:
    rows = [PublishedRow(model, Key(f"of-{model}", model), ModelRoute(fleet=fleet)) for model in models]
    return PublishedTable(rows, [UnreadRow([name], Key(f"of-{name}", name)) for name in unread])


async def test_a_change_is_written_and_a_table_that_stands_is_confirmed() -> None:
    world = World()
    for seconds, table, writes in (
        (0, naming("m"), 1),
        (2, naming("m"), 1),
        (2, naming("m", "n"), 2),
        (2, naming("m", "n"), 2),
        (CONFIRM_SECONDS, naming("m", "n"), 3),
    ):
        world.table = table
        assert await world.copy_once(seconds)
        assert len(world.written) == writes
    assert [copy.written_at for copy in world.written] == [1000, 1004, 1006 + CONFIRM_SECONDS]
    assert [set(copy.table.models) for copy in world.written] == [{"m"}, {"m", "n"}, {"m", "n"}]
    assert [at for at, _ in world.reported_writes] == [copy.written_at for copy in world.written]


async def test_a_table_that_is_not_whole_replaces_none() -> None:
    world = World()
    world.table = None
    assert await world.copy_once()
    assert world.written == []


async def test_a_write_that_fails_is_told_once_and_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.fault = ClusterError("PATCH: HTTP 403: not allowed", retriable=False)
    assert [await world.copy_once(30) for _ in range(3)] == [False] * 3
    (warning,) = caplog.messages
    assert "not allowed" in warning
    world.fault = None
    assert await world.copy_once(30)
    assert len(world.written) == 1


async def test_a_table_that_is_too_long_leaves_the_last_copy(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    await world.copy_once()
    monkeypatch.setattr("paternoster_contract.routing_copy.MOST_BYTES", 10)
    world.table = naming("n")
    assert not await world.copy_once(2)
    assert len(world.written) == 1
    assert "no copy of it can be kept" in caplog.text


async def test_a_row_that_could_not_be_built_stays_in_the_copy() -> None:
    world = World()
    world.table = naming("m", "n")
    await world.copy_once()
    world.table = naming("n", unread=["m"], fleet="new")
    await world.copy_once(2)
    models = world.written[-1].table.models
    assert {name: route.fleet for name, route in models.items()} == {"m": "", "n": "new"}


async def test_a_copy_without_room_for_all_keeps_the_rows_of_small_namespaces(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    large = [
        PublishedRow(
            f"h{i}", Key("hostile", f"h{i}"), ModelRoute(key_digests=[digest_key(f"{i}/{j}") for j in range(256)])
        )
        for i in range(150)
    ]
    small = [
        PublishedRow(f"s{i}", Key(f"team-{i}", "s"), ModelRoute(key_digests=[digest_key(str(i))])) for i in range(20)
    ]
    world.table = PublishedTable([*large, *small])
    assert await world.copy_once()
    models = world.written[-1].table.models
    assert {row.name for row in small} <= models.keys()
    assert 20 < len(models) < 170
    assert "has no room for" in caplog.text
