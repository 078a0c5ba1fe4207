"""The rollout's plan, played against pods that become ready, break and go in any order."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.local.rollout import PodFacts, plan_rollout

pods = st.lists(
    st.builds(
        PodFacts,
        name=st.uuids().map(str),
        updated=st.booleans(),
        created=st.floats(0, 100),
        ready=st.booleans(),
        available=st.just(False),
        deletion_cost=st.integers(-5, 5),
    ).flatmap(lambda pod: st.just(pod) if not pod.ready else st.booleans().map(lambda on: replace(pod, available=on))),
    max_size=8,
    unique_by=lambda pod: pod.name,
)
bounds = st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)).filter(lambda b: b[1] + b[2] > 0)


@given(pods, bounds)
def test_a_step_stays_within_surge_and_availability(found: list[PodFacts], limits: tuple[int, int, int]) -> None:
    replicas, surge, unavailable = limits
    step = plan_rollout(found, replicas=replicas, max_surge=surge, max_unavailable=unavailable)
    left = [pod for pod in found if pod.name not in step.end]
    assert step.start == 0 or len(found) + step.start <= replicas + surge
    ended_available = [pod for pod in found if pod.name in step.end and pod.available]
    still_available = sum(pod.available for pod in left)
    updated_left = sum(pod.updated for pod in left)
    # An available pod goes only where enough others stay, or where the latest ones are too many.
    assert not ended_available or still_available >= replicas - unavailable or updated_left == replicas
    assert updated_left + step.start <= max(replicas, updated_left)


@given(pods, bounds)
def test_steps_lead_to_the_wanted_pods(found: list[PodFacts], limits: tuple[int, int, int]) -> None:
    replicas, surge, unavailable = limits
    for turn in range(60):
        step = plan_rollout(found, replicas=replicas, max_surge=surge, max_unavailable=unavailable)
        if not step.start and not step.end and all(pod.available for pod in found):
            break
        found = [replace(pod, ready=True, available=True) for pod in found if pod.name not in step.end]
        found += [PodFacts(f"{turn}-{i}", True, 1000.0 + turn, False, False) for i in range(step.start)]
    assert [pod.updated for pod in found] == [True] * replicas


@given(pods)
def test_victims_are_unready_then_cheap_then_new(found: list[PodFacts]) -> None:
    found = [replace(pod, updated=True) for pod in found]
    order = [plan_rollout(found, replicas=n, max_surge=1, max_unavailable=0).end for n in range(len(found), -1, -1)]
    for fewer, more in pairwise(order):
        assert more[: len(fewer)] == fewer
    rank = {pod.name: (pod.ready, pod.deletion_cost, -pod.created) for pod in found}
    ranks = [rank[name] for name in order[-1]]
    assert ranks == sorted(ranks)
