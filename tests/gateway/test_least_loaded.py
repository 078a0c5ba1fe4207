"""The kept-up structure picks what the plain function picks."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.routing import Replica
from paternoster_gateway.routing import LeastLoaded, pick

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


@given(changes, st.sets(names), st.integers(0, 100))
def test_least_loaded_picks_as_pick(happened: list[tuple[str, str]], avoid: set[str], turn: int) -> None:
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
            least.change(name, 1)
        elif what == "answered" and in_flight[name] > 0:
            in_flight[name] -= 1
            least.change(name, -1)
        assert {name for name in NAMES if name in least} == ready
        for shunned in ((), avoid):
            replicas = [Replica(name=name, url="http://engine", ready=name in ready) for name in NAMES]
            chosen = pick(replicas, in_flight, avoid=shunned, turn=turn)
            assert least.pick(avoid=shunned, turn=turn) == (chosen.name if chosen else None)
