"""The kept-up structure picks what a look at every replica picks, alone and inside the balancer."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import RoutedRequest, Send
from paternoster_gateway.routing.least_loaded import LeastLoaded

NAMES = [f"pod-{i}" for i in range(6)]
names = st.sampled_from(NAMES)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("ready"), names),
        st.tuples(st.just("gone"), names),
        st.tuples(st.just("sent"), names),
        st.tuples(st.just("answered"), names),
    ),
    max_size=60,
)


def picked_from_all(ready: set[str], in_flight: Mapping[str, int], avoid: Collection[str], turn: int) -> str | None:
    """The oracle: every replica looked at."""
    able = sorted(ready.difference(avoid))
    fewest = min((in_flight[name] for name in able), default=0)
    least = [name for name in able if in_flight[name] == fewest]
    return least[turn % len(least)] if least else None


@given(changes, st.sets(names), st.integers(0, 100))
def test_least_loaded_picks_as_a_search_of_all_replicas(
    happened: list[tuple[str, str]], avoid: set[str], turn: int
) -> None:
    least, in_flight, ready = LeastLoaded(), dict.fromkeys(NAMES, 0), set[str]()
    for what, name in happened:
        if what == "ready" and name not in ready:
            ready.add(name)
            least.add(name, in_flight[name])
        elif what == "gone":
            ready.discard(name)
            least.remove(name)
        elif what == "sent":
            in_flight[name] += 1
            least.add_in_flight(name, 1)
        elif what == "answered" and in_flight[name] > 0:
            in_flight[name] -= 1
            least.add_in_flight(name, -1)
        assert {name for name in NAMES if name in least} == ready
        for shunned in ((), avoid):
            assert least.pick(avoid=shunned, turn=turn) == picked_from_all(ready, in_flight, shunned, turn)


def table(ready: set[str]) -> RoutingTable:
    fleet = [Replica(name="pod", url=name, ready=name in ready) for name in NAMES]
    return RoutingTable(models={"m": ModelRoute(replicas=fleet), "other": ModelRoute()})


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("asked"), st.sets(names, max_size=2)),
        st.tuples(st.just("answered"), st.integers(0, 100)),
        st.tuples(st.just("changed"), st.sets(names, min_size=1)),
    ),
    min_size=10,
    max_size=40,
)


@given(happenings)
def test_the_balancer_picks_as_a_search_of_all_replicas_after_each_event(happened: list[tuple[str, Any]]) -> None:
    """Whatever was sent, answered and changed before, it picks a ready replica with the fewest in flight."""
    routes, load = table(set(NAMES)), Counter[str]()
    balancer = Balancer()
    balancer.on_table(routes)
    unanswered: list[tuple[str, RoutedRequest]] = []
    for what, subject in happened:
        if what == "changed":
            routes = table(subject)
            balancer.on_table(routes)
        elif what == "answered" and unanswered:
            name, sent = unanswered.pop(subject % len(unanswered))
            balancer.on_attempt_end(sent, name)
            load[name] -= 1
        elif what == "asked":
            able = [r for r in routes.models["m"].replicas if r.ready and r.url not in subject]
            if not able:
                continue
            request = balancer.open_request("m", "", 0.0)
            request.tried.extend(subject)
            decision = balancer.route(request, routes.models["m"], 0.0)
            assert isinstance(decision, Send)
            assert decision.replica in able
            assert load[decision.replica.url] == min(load[r.url] for r in able)
            unanswered.append((decision.replica.url, request))
            load[decision.replica.url] += 1
    assert balancer.in_flight == {name: count for name, count in load.items() if count}
