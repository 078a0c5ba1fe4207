"""The scaling law as properties: what it does whatever the numbers are, and what it says."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import decide, first_state, law_state, policy, seen

from paternoster_operator.autoscaling.decision import Reason
from paternoster_operator.autoscaling.loops.limits import Evaluation
from paternoster_operator.autoscaling.signals import Signals

signals = st.builds(
    lambda ready, pending, running, waiting, held, above, finished, preempted, kv, fresh: Signals(
        ready=ready,
        pending=pending,
        fresh=fresh and ready > 0,
        running=running if ready else 0,
        waiting=waiting if ready else 0,
        held=held,
        above_cap=min(above, running) if ready else 0,
        peak_running=running // max(ready, 1),
        finished=finished,
        preempted=preempted,
        kv_usage=kv,
        kv_peak_usage=kv,
    ),
    ready=st.integers(0, 12),
    pending=st.integers(0, 4),
    running=st.integers(0, 500),
    waiting=st.integers(0, 500),
    held=st.integers(0, 100),
    above=st.integers(0, 100),
    finished=st.integers(0, 200),
    preempted=st.integers(0, 200),
    kv=st.floats(0, 1),
    fresh=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(signals, min_size=1, max_size=30), st.integers(1, 4), st.integers(0, 6), st.integers(0, 12))
def test_always_within_bounds_and_budget(trace: list[Signals], low: int, extra: int, gpus: int) -> None:
    bounds = policy(
        autoscaling={"minReplicas": low, "maxReplicas": low + extra},
        concurrency={"mode": "Auto", "min": 2, "max": 40},
        resources={"gpu": {"count": 1}},
        budget={"maxGPUs": max(gpus, low)},
    )
    state = first_state(bounds, 0.0, replicas=20, live_cap=48)
    now = 0.0
    for sample in trace:
        decision = decide(bounds, sample, state, now)
        state = decision.state
        assert low <= state.replicas <= min(low + extra, max(gpus, low))
        assert 2 <= state.live_cap <= 40
        for made in (decision.replicas, decision.live_cap):
            assert made is None or (made.target == made.current) == (made.action == "Hold")
        now += 5


@settings(max_examples=200, deadline=None)
@given(signals, st.integers(0, 300), st.integers(1, 10))
def test_more_demand_never_wants_fewer_replicas(sample: Signals, more: int, replicas: int) -> None:
    calm = replace(sample, preempted=0, fresh=True, ready=max(sample.ready, 1))
    state = law_state(replicas=replicas, live_cap=48)
    wanted = []
    for waiting in (calm.waiting, calm.waiting + more):
        decision = decide(policy(), replace(calm, waiting=waiting), state, 0.0).replicas
        assert decision is not None
        wanted.append(decision.recommended)
    # from a queue of none to some, the cap that holds is compared instead of the highest: never a larger one
    assert wanted[0] <= wanted[1]


@settings(max_examples=100, deadline=None)
@given(signals, st.integers(1, 10), st.integers(1, 48))
def test_nothing_is_done_on_silence(sample: Signals, replicas: int, cap: int) -> None:
    silent = replace(sample, fresh=False, held=0)
    decision = decide(policy(), silent, law_state(replicas, cap), 0.0)
    assert (decision.state.replicas, decision.state.live_cap) == (replicas, cap)
    assert decision.replicas is not None
    assert decision.replicas.reason in (Reason.METRICS_STALE, Reason.INSUFFICIENT_DATA)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400), st.integers(1, 10), st.integers(1, 48), st.integers(1, 48))
def test_a_cut_cap_is_no_reason_for_replicas_by_itself(running: int, replicas: int, cap: int, cut: int) -> None:
    """Without a queue, what runs above a lowered cap drains: it is not new demand."""
    idle = seen(ready=replicas, running=min(running, replicas * cap), waiting=0)
    wanted = []
    for now_cap in (cap, min(cap, cut)):
        decision = decide(policy(), idle, law_state(replicas, now_cap), 0.0).replicas
        assert decision is not None
        wanted.append(decision.recommended)
    assert wanted[1] <= wanted[0]


def test_pending_replicas_are_supply() -> None:
    state = first_state(policy(), 0.0, replicas=2)
    busy = seen(running=96, waiting=40)
    first = decide(policy(), busy, state, 0.0)
    assert first.state.replicas == 4
    later = decide(policy(), replace(busy, pending=2), first.state, 15.0)
    assert later.state.replicas == 4


def test_down_only_after_the_window_and_no_faster_than_allowed() -> None:
    down = {"stabilizationWindowSeconds": 60, "periodSeconds": 60, "maxPercent": 25}
    quick = policy(autoscaling={"maxReplicas": 10, "scaleDown": down})
    state = first_state(quick, 0.0, replicas=4)
    history = []
    for step in range(40):
        state = decide(quick, seen(ready=state.replicas, running=1), state, step * 5.0).state
        history.append(state.replicas)
    assert history[:12] == [4] * 12, "nothing within the first window"
    assert history == sorted(history, reverse=True)
    assert max(a - b for a, b in pairwise(history)) == 1
    assert history[-1] < 4


def test_one_peak_in_the_window_keeps_the_replicas() -> None:
    quick = policy(autoscaling={"maxReplicas": 10, "scaleDown": {"stabilizationWindowSeconds": 60}})
    state = first_state(quick, 0.0, replicas=3)
    for step in range(30):
        busy = step % 9 == 0
        state = decide(quick, seen(ready=3, running=110 if busy else 1), state, step * 5.0).state
        assert state.replicas == 3


def test_nobody_who_serves_goes_while_others_are_on_their_way() -> None:
    quick = policy(autoscaling={"maxReplicas": 4, "scaleDown": {"stabilizationWindowSeconds": 0}})
    state = law_state(replicas=2, live_cap=48)
    decision = decide(quick, seen(running=2, pending=1, startup_seconds=0.0), state, 0.0).replicas
    assert decision is not None
    assert (decision.target, decision.reason) == (2, Reason.PENDING_REPLICAS)
    assert "held until the 1 pending serve" in decision.message


def test_constant_load_settles() -> None:
    """At most one change of direction, whatever the constant load is."""
    for running in range(0, 400, 46):
        state = first_state(policy(), 0.0, replicas=5)
        changes = []
        for step in range(200):
            load = seen(
                ready=state.replicas,
                running=min(running, 48 * state.replicas),
                waiting=max(0, running - 48 * state.replicas),
            )
            decision = decide(policy(), load, state, step * 5.0)
            state = decision.state
            if decision.replicas is not None and decision.replicas.action != "Hold":
                changes.append(decision.replicas.action)
        assert sum(a != b for a, b in pairwise(changes)) <= 1, (running, changes)


def test_the_messages_carry_the_numbers() -> None:
    busy = seen(running=80, waiting=38, finished=40, preempted=8, peak_running=40, refused=2, window_seconds=30)
    few = policy(concurrency={"mode": "Auto", "objective": "PreemptionRate"})
    decision = decide(few, busy, first_state(few, 0.0, replicas=2), 0.0)
    assert decision.live_cap is not None
    counted = "8 of 40 requests preempted with 40 sequences = 20.0%, target 2.0%"
    assert decision.live_cap.message == f"live cap 48->39 sequences: {counted}"
    assert decision.live_cap.reason is Reason.PREEMPTION_ABOVE_TARGET
    calm = replace(busy, preempted=0)
    decision = decide(policy(), calm, first_state(policy(), 0.0, replicas=2), 0.0)
    assert decision.replicas is not None
    assert decision.replicas.message == (
        "replicas 2->4: demand 118 sequences (80 running, 38 waiting, 2 refused in 30 s) = 123% of the 96 "
        "that 2 replicas sustain > 80%"
    )
    assert decision.replicas.inputs["waiting"] == "38"
    assert decision.replicas.utilization == pytest.approx(118 / 96)


@pytest.mark.parametrize(("ready", "target"), [(1, 1), (2, 2), (3, 3), (4, 1)])
def test_replicas_on_their_way_are_called_back_and_those_that_serve_stay(ready: int, target: int) -> None:
    """One that no node has room for would otherwise keep all others for ever."""
    quick = policy(autoscaling={"maxReplicas": 4, "scaleDown": {"stabilizationWindowSeconds": 0, "maxPods": 4}})
    state = law_state(replicas=4, live_cap=48)
    load = seen(ready=ready, pending=4 - ready, running=2, startup_seconds=0.0)
    decision = decide(quick, load, state, 0.0).replicas
    assert decision is not None
    assert decision.target == target, "with nothing on its way the formula has its way"


@pytest.mark.parametrize(("seconds", "target"), [(45.0, 4), (90.0, 3)])
def test_nothing_is_called_back_before_it_could_have_served(seconds: float, target: int) -> None:
    """The user's window is shorter than a start: what is called back within one may be wanted again."""
    quick = policy(autoscaling={"maxReplicas": 4, "scaleDown": {"stabilizationWindowSeconds": 15}})
    state = law_state(replicas=4, live_cap=48, evaluations=(Evaluation(-1.0, 4),))
    load = seen(ready=3, pending=1, running=2, startup_seconds=60.0)
    for step in range(int(seconds / 5) + 1):
        state = decide(quick, load, state, step * 5.0).state
    assert state.replicas == target


@pytest.mark.parametrize(
    ("window", "ready", "words"),
    [
        (300, 4, "until fewer were wanted for 300 s (stabilizationWindowSeconds)"),
        (30, 3, "until fewer were wanted for 60 s (a start-up)"),
        (None, 4, "until fewer were wanted for 120 s (stabilizationWindowSeconds is unset)"),
    ],
)
def test_a_window_is_named_with_where_it_comes_from(window: int | None, ready: int, words: str) -> None:
    down = {} if window is None else {"stabilizationWindowSeconds": window}
    law = policy(autoscaling={"maxReplicas": 4, "scaleDown": down})
    state = law_state(replicas=4, live_cap=48, evaluations=(Evaluation(-1.0, 4),))
    made = decide(law, seen(ready=ready, pending=4 - ready, running=2, startup_seconds=60.0), state, 0.0).replicas
    assert made is not None
    assert made.reason is Reason.STABILIZING
    assert words in made.message


@pytest.mark.parametrize(
    ("steady", "ready", "max_pods", "target", "limited"),
    [
        (1, 6, 9, 1, ()),
        (4, 6, 9, 4, (Reason.STABILIZING,)),
        (1, 6, 2, 4, (Reason.STEP_LIMITED,)),
        (1, 5, 9, 5, (Reason.PENDING_REPLICAS,)),
        (4, 6, 2, 4, (Reason.STABILIZING, Reason.STEP_LIMITED)),
    ],
)
def test_what_keeps_replicas_in_a_scale_down_is_named(
    steady: int, ready: int, max_pods: int, target: int, limited: tuple[Reason, ...]
) -> None:
    """And what would have kept fewer of them is not."""
    down = {"stabilizationWindowSeconds": 60, "maxPods": max_pods, "maxPercent": 1}
    law = policy(autoscaling={"minReplicas": 1, "maxReplicas": 9, "scaleDown": down})
    seen_before = tuple(Evaluation(-15.0 * i, steady) for i in (3, 2, 1))
    state = law_state(replicas=6, live_cap=48, evaluations=seen_before)
    made = decide(law, seen(ready=ready, pending=6 - ready, running=2, startup_seconds=5.0), state, 0.0).replicas
    assert made is not None
    assert (made.target, made.limited_by) == (target, limited)


@pytest.mark.parametrize("mode", ["Auto", "Advisory"])
def test_preemptions_at_the_floor_are_told_and_order_no_replica(mode: str) -> None:
    """Replicas follow what memory has room for, and no rate of preemptions."""
    floor = policy(concurrency={"mode": mode, "initial": 4, "min": 4, "objective": "PreemptionRate"})
    storm = seen(running=4, finished=50, preempted=10, peak_running=4)
    made = decide(floor, storm, law_state(replicas=2, live_cap=4), 0.0)
    assert made.live_cap is not None
    assert (made.live_cap.reason, made.live_cap.limited_by) == (Reason.AT_FLOOR, (Reason.AT_FLOOR,))
    counted = "10 of 50 requests preempted with 4 sequences = 20.0%, target 2.0%"
    assert made.live_cap.message == f"{counted}; 4 sequences are the fewest allowed"
    assert made.live_cap.preempts_at_floor is (mode == "Auto")
    assert made.state.replicas == 2


def test_advisory_says_and_does_nothing() -> None:
    concurrency = {"mode": "Advisory", "objective": "PreemptionRate"}
    advisory = policy(autoscaling={"mode": "Advisory", "maxReplicas": 10}, concurrency=concurrency)
    state = law_state(replicas=2, live_cap=48)
    decision = decide(advisory, seen(running=96, waiting=90, finished=50, preempted=30, peak_running=48), state, 0.0)
    assert decision.replicas is not None
    assert decision.live_cap is not None
    assert decision.replicas.target > 2
    assert decision.live_cap.target < 48
    assert not decision.replicas.applied
    assert not decision.live_cap.applied
    assert (decision.state.replicas, decision.state.live_cap) == (2, 48)


def test_an_advised_cap_is_the_initial_one_and_that_of_a_paused_fleet_stays() -> None:
    """Engines that have another cap get it again; a pause lets nothing move, and goes on from there."""
    few = {"objective": "PreemptionRate", "initial": 32}
    storm = seen(running=32, waiting=90, finished=50, preempted=30, peak_running=16)
    advised = decide(policy(concurrency=few), storm, law_state(replicas=2, live_cap=16), 0.0)
    assert advised.live_cap is not None
    assert (advised.live_cap.current, advised.live_cap.applied, advised.state.live_cap) == (32, False, 32)
    assert advised.live_cap.target < 32, "what would be done is told"
    paused = decide(policy(paused=True, concurrency={**few, "mode": "Auto"}), storm, law_state(2, live_cap=16), 0.0)
    assert paused.live_cap is not None
    assert (paused.live_cap.current, paused.live_cap.applied, paused.state.live_cap) == (16, False, 16)


def test_external_and_fixed_follow_the_spec() -> None:
    external = policy(
        replicas=7, autoscaling={"mode": "External", "maxReplicas": 9}, concurrency={"mode": "Fixed", "initial": 9}
    )
    decision = decide(external, seen(running=96, waiting=900), law_state(2, 48, since=0.0), 0.0)
    assert decision.replicas is None
    assert decision.live_cap is None
    assert (decision.state.replicas, decision.state.live_cap) == (7, 9)


def test_a_restarted_operator_begins_with_what_runs() -> None:
    state = first_state(policy(), 0.0, replicas=5, live_cap=17)
    assert (state.replicas, state.live_cap) == (5, 17)
    assert first_state(policy(), 0.0).replicas == 1
