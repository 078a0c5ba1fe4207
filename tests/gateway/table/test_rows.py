"""A routing table in rows: what did not change is not parsed again, and what is wrong stays where it is."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.routing_rows import MOST_BYTES, End, Row
from paternoster_gateway.admission.admission import admit_request, opens_any_model
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.table.rows import RowReader


async def pieces(text: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def lines(*fleets: tuple[str, str], unread: tuple[str, ...] = ()) -> bytes:
    rows = [Row(name=name, route=ModelRoute(fleet=fleet)).encode() for name, fleet in fleets]
    return b"".join(rows) + End(rows=len(rows), unread=list(unread)).encode()


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=5), st.integers(1, 200))
def test_a_table_in_any_pieces_is_read_whole(fleets: dict[str, str], size: int) -> None:
    table = asyncio.run(RowReader().read(pieces(lines(*fleets.items()), size), "e"))
    assert table == RoutingTable(models={name: ModelRoute(fleet=fleet) for name, fleet in fleets.items()})


async def test_an_unchanged_row_is_the_same_object() -> None:
    reader = RowReader()
    first = await reader.read(pieces(lines(("a", "1"), ("b", "2")), 64), "e1")
    second = await reader.read(pieces(lines(("a", "1"), ("b", "3")), 64), "e2")
    assert first.models["a"] is second.models["a"]
    assert second.models["b"].fleet == "3"
    assert reader.etag == "e2"


async def test_invalid_rows_leave_out_only_themselves_and_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = RowReader()
    bad = b"".join(b'{"name": "%d", "route": {"max_held": "x"}}\n' % number for number in range(99))
    text = bad + Row(name="a", route=ModelRoute()).encode()
    for _ in range(2):
        table = await reader.read(pieces(text + End(rows=100).encode(), 64), "e")
        assert list(table.models) == ["a"]
    (message,) = caplog.messages
    assert message.startswith("99 rows of the routing table are left out; the first: 1 validation error")


@pytest.mark.parametrize(
    "cut", [lines(("a", "1"))[:-1], lines(("a", "1")).splitlines(True)[0], b"", b"[]\n", End(rows=1).encode()]
)
async def test_a_table_that_is_cut_off_leaves_the_last_one(cut: bytes) -> None:
    reader = RowReader()
    with pytest.raises(ValueError, match=r"cut off|rows of|End"):
        await reader.read(pieces(cut, 64), "e")
    assert reader.etag == ""


async def test_a_table_longer_than_the_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than"):
        await RowReader().read(pieces(b"x" * (MOST_BYTES + 2**21), 2**16), "e")


def test_an_unread_name_keeps_its_row_and_is_503_without_a_row() -> None:
    before = RoutingTable(models={"a": ModelRoute(fleet="1"), "b": ModelRoute(fleet="2")})
    now = RoutingTable(models={"b": ModelRoute(fleet="3")}, unread=["a", "new"]).completed_from(before)
    assert {name: route.fleet for name, route in now.models.items()} == {"a": "1", "b": "3"}
    old_rows = {"a": ModelRoute(fleet="old"), "new": ModelRoute(fleet="4")}
    found = RoutingTable(models=old_rows, unread=["a", "new"]).completed_from(before)
    assert {name: route.fleet for name, route in found.models.items()} == {"a": "1", "new": "4"}
    with pytest.raises(GatewayError) as refusal:
        admit_request(now, "new", "", 0.0)
    assert refusal.value.status == 503
    with pytest.raises(GatewayError) as refusal:
        admit_request(now, "other", "", 0.0)
    assert refusal.value.status == 404


def test_an_unread_name_that_has_a_row_lets_no_unknown_key_by() -> None:
    """A request is admitted by the row that there is, read just now or not: no other key can open the model."""
    rows = {name: ModelRoute(fleet=name, aliases=[f"{name}-alias"], key_digests=[f"{name}-key"]) for name in "ab"}
    whole = RoutingTable(models=rows)
    unread = RoutingTable(models={"b": rows["b"]}, unread=["a", "a-alias"]).completed_from(whole)
    for table in (whole, unread):
        assert [opens_any_model(table, key) for key in ("a-key", "b-key", "unknown")] == [True, True, False]
        for name in table.first_names:
            with pytest.raises(GatewayError) as refusal:
                admit_request(table, name, "unknown", 0.0)
            assert refusal.value.status == 401
    assert opens_any_model(RoutingTable(models=rows, unread=["a", "new"]), "unknown"), "it may be a key of new"


def test_a_replica_of_the_table_costs_a_collection_of_garbage_one_object() -> None:
    def count_objects(replicas: int) -> int:
        made = [Replica(name=f"e-{i}", url=f"http://10.0.0.{i}:8000", ready=True) for i in range(replicas)]
        line = Row(name="m", route=ModelRoute(replicas=made)).encode()
        del made
        gc.collect()
        before = len(gc.get_objects())
        row = Row.model_validate_json(line)
        after = len(gc.get_objects())
        assert len(row.route.replicas) == replicas
        return after - before

    count_objects(1)
    # The process makes an object of its own in between, now and then.
    assert round((count_objects(1001) - count_objects(1)) / 100) == 10


def test_a_replica_of_two_models_is_probed_as_the_first_has_it() -> None:
    replica = Replica(name="e", url="http://10.0.0.1:8000", ready=True)
    rows = {name: ModelRoute(replicas=[replica], health_path=f"/{name}") for name in ("first", "second")}
    table = RoutingTable(models=rows)
    assert table.health_path(replica.url) == "/first"
    assert table.health_path("http://10.0.0.2:8000") == "/health"
