"""Which replica is picked, whatever the fleet looks like."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica
from paternoster_gateway.routing.least_loaded import ReadyReplicas

replicas = st.lists(
    st.builds(Replica, name=st.sampled_from("ab"), url=st.sampled_from("abcdefgh"), ready=st.booleans()),
    max_size=8,
    unique_by=lambda replica: replica.url,
)
loads = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 5))
avoided = st.sets(st.sampled_from("abcdefgh"), max_size=3)


@given(replicas, loads, avoided, st.integers(0, 1000))
def test_a_request_goes_to_a_ready_replica_with_the_fewest_in_flight(
    fleet: list[Replica], in_flight: dict[str, int], avoid: set[str], turn: int
) -> None:
    able = [replica for replica in fleet if replica.ready and replica.url not in avoid]
    picked = ReadyReplicas(ModelRoute(replicas=fleet), in_flight).pick(avoid=avoid, turn=turn)
    if not able:
        assert picked is None
    else:
        assert picked in able
        assert in_flight.get(picked.url, 0) == min(in_flight.get(replica.url, 0) for replica in able)


@given(st.integers(1, 8), st.integers(1, 5))
def test_replicas_with_equal_load_take_turns(count: int, rounds: int) -> None:
    fleet = [Replica(name="pod-0", url=f"http://{i}", ready=True) for i in range(count)]
    ready = ReadyReplicas(ModelRoute(replicas=fleet), {})
    picks = Counter(picked.url for turn in range(count * rounds) if (picked := ready.pick(turn=turn)) is not None)
    assert set(picks.values()) == {rounds}
