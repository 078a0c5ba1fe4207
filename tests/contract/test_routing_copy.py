"""The copy of the routing table: what was packed comes out, and nothing else is believed."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract import routing_copy
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.routing_copy import RoutingCopy

REPLICAS = st.builds(Replica, name=st.text(max_size=4), url=st.text(max_size=8), ready=st.booleans())
TABLES = st.builds(
    RoutingTable,
    models=st.dictionaries(
        st.text(max_size=8),
        st.builds(
            ModelRoute,
            fleet=st.text(max_size=4),
            key_digests=st.none() | st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), max_size=2),
            replicas=st.lists(REPLICAS),
            max_model_len=st.none() | st.integers(1, 2**20),
        ),
        max_size=4,
    ),
)  # fmt: skip


@given(TABLES, st.floats(0, 1e12, allow_nan=False))
def test_what_was_packed_comes_out(table: RoutingTable, written_at: float) -> None:
    copy = RoutingCopy(written_at=written_at, table=table)
    assert RoutingCopy.unpack(copy.pack()) == copy
    assert copy.pack() == copy.pack(), "the same table has the same bytes"


@given(st.binary(max_size=200))
def test_other_bytes_are_none(data: bytes) -> None:
    for hostile in (data, gzip.compress(data), RoutingCopy(written_at=0, table=RoutingTable()).pack()[:-1]):
        with pytest.raises(ValueError, match="the copy of the routing table"):
            RoutingCopy.unpack(hostile)


def test_it_is_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RoutingTable(models={f"m{number}": ModelRoute() for number in range(1000)})
    copy = RoutingCopy(written_at=0, table=table)
    packed = copy.pack()
    monkeypatch.setattr(routing_copy, "MOST_UNPACKED_BYTES", 10_000)
    with pytest.raises(ValueError, match="longer than 10000 bytes"):
        RoutingCopy.unpack(packed)
    with pytest.raises(ValueError, match="no copy of it can be kept"):
        copy.pack()


def test_a_large_installation_fits() -> None:
    """10,000 replicas with the names and addresses of pods."""
    replicas = [
        Replica(name=f"team-{number % 50}/chat-{number * 7919 % 16**8:08x}-{number * 104729 % 16**5:05x}",
                url=f"http://10.{number // 65536}.{number // 256 % 256}.{number % 256}:8000", ready=True)
        for number in range(10_000)
    ]  # fmt: skip
    models = {f"m{n}": ModelRoute(replicas=replicas[n * 10 : n * 10 + 10]) for n in range(1000)}
    assert len(RoutingCopy(written_at=0, table=RoutingTable(models=models)).pack()) < routing_copy.MOST_BYTES
