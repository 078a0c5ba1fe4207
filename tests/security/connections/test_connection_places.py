"""Who gives way when every place of a port is taken, and what counts as one address."""

from collections.abc import Callable

import pytest

from paternoster_http import connections as module
from paternoster_http.connections import Connections, Place


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def wait_for(seconds: float) -> None:
        now[0] += seconds

    return wait_for


def enter(connections: Connections, host: str = "10.0.0.1") -> tuple[Place | None, list[str]]:
    closed: list[str] = []
    return connections.open_place(host, lambda: closed.append("closed")), closed


def test_the_one_that_has_waited_longest_gives_way(wait: Callable[[float], None]) -> None:
    connections = Connections(2)
    (first, first_closed), (second, second_closed) = enter(connections), enter(connections)
    assert first is not None
    assert second is not None
    wait(2)
    first.begin_waiting()  # for another request, from now on
    assert not connections.make_room()
    assert (first_closed, second_closed) == ([], ["closed"])
    second.close_place()
    assert connections.make_room()


def test_nobody_gives_way_who_works_or_has_only_come(wait: Callable[[float], None]) -> None:
    connections = Connections(2)
    (working, closed), (new, new_closed) = enter(connections), enter(connections)
    assert working is not None
    assert new is not None
    working.begin_working()
    wait(0.5)
    assert not connections.make_room()
    wait(1)
    assert not connections.make_room()
    assert (closed, new_closed) == ([], ["closed"])


def test_a_place_is_left_once() -> None:
    connections = Connections(2)
    totals: list[int] = []
    connections.on_room = lambda: totals.append(connections.total)
    place, _ = enter(connections)
    assert place is not None
    place.close_place()
    place.close_place()
    place.begin_waiting()
    assert (connections.total, totals) == (0, [0])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_an_address_is_an_ipv4_address_or_an_ipv6_network(one: str, other: str, same: bool) -> None:
    connections = Connections(10, 1)
    assert enter(connections, one)[0] is not None
    assert (enter(connections, other)[0] is None) == same


def test_the_address_with_the_most_connections_gives_way(wait: Callable[[float], None]) -> None:
    connections = Connections(3)
    (_, quiet_closed), (_, first_closed), (_, second_closed) = (
        enter(connections, host) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2")
    )
    wait(2)
    assert not connections.make_room()
    assert (quiet_closed, first_closed, second_closed) == ([], ["closed"], [])


def test_where_the_largest_addresses_work_another_gives_way(wait: Callable[[float], None]) -> None:
    connections = Connections(11)
    for number in range(5):
        for _ in range(2):
            place, _ = enter(connections, f"10.0.0.{number}")
            assert place is not None
            place.begin_working()
    _, closed = enter(connections, "10.0.1.1")
    wait(2)
    assert not connections.make_room()
    assert closed == ["closed"]
