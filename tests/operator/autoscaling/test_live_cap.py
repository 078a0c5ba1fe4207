"""The cap loop: what it cuts to, when it raises, and that it comes below its target."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import (
    LawState,
    decide,
    decoding,
    first_state,
    law_state,
    policy,
    seen,
    step_sums,
)

from paternoster_engine.core.step_work import StepWork
from paternoster_operator.autoscaling.decision import LIVE_CAP, LoopDecision, Reason
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals

RATE = {"mode": "Auto", "objective": "PreemptionRate"}


def test_next_to_no_use_of_memory_leaves_the_cap_its_highest() -> None:
    """The smallest number above zero: what it would leave room for is no number any more."""
    bounds = policy(concurrency={"mode": "Auto", "max": 40})
    idle = seen(waiting=9, peak_running=5, kv_usage=5e-324, kv_peak_usage=5e-324, finished=50)
    decision = decide(bounds, idle, law_state(2, 30), 0.0).live_cap
    assert decision is not None
    assert decision.target > 30


def test_the_cap_is_raised_only_with_a_queue_room_and_peace() -> None:
    state = law_state(replicas=2, live_cap=20)

    def reason(**load: Any) -> Reason:
        ran = {"peak_running": 20, "kv_peak_usage": 0.3, "finished": 1000}
        decision = decide(policy(concurrency=RATE), seen(**{**ran, **load}), state, 0.0).live_cap
        assert decision is not None
        return decision.reason

    assert reason(waiting=5) is Reason.HEADROOM_AVAILABLE
    assert reason(waiting=0) is Reason.WITHIN_TOLERANCE
    assert reason(waiting=5, kv_peak_usage=0.95) is Reason.KV_HIGH_WATERMARK
    assert reason(waiting=5, preempted=18) is Reason.WITHIN_TOLERANCE
    assert reason(waiting=5, preempted=1) is Reason.HEADROOM_AVAILABLE
    assert reason(waiting=5, finished=2, preempted=2) is Reason.WITHIN_TOLERANCE
    state = law_state(replicas=2, live_cap=48)
    assert reason(waiting=5, peak_running=48) is Reason.AT_CAPACITY


def test_no_more_sequences_run_before_those_that_do_were_seen_to_their_end() -> None:
    """Eleven young ones may use little of a pool that five old ones fill."""
    young = seen(waiting=9, running=22, peak_running=11, kv_peak_usage=0.41, finished=10)
    state = law_state(replicas=2, live_cap=11)
    made = decide(policy(concurrency=RATE), young, state, 0.0).live_cap
    assert made is not None
    assert (made.target, made.reason) == (11, Reason.INSUFFICIENT_DATA)
    old = replace(young, finished=11)
    assert decide(policy(concurrency=RATE), old, state, 0.0).state.live_cap > 11


@pytest.mark.parametrize(("bounds", "target"), [({"max": 12}, 12), ({"min": 30}, 30)])
def test_an_edit_of_the_bounds_is_the_reason_that_is_given(bounds: dict[str, int], target: int) -> None:
    state = law_state(replicas=2, live_cap=20)
    decision = decide(policy(concurrency={"mode": "Auto", **bounds}), seen(waiting=0), state, 0.0).live_cap
    assert decision is not None
    assert (decision.target, decision.reason) == (target, Reason.BOUNDS_CHANGED)
    allowed = f"{bounds.get('min', 1)} to {bounds.get('max', 48)}"
    assert decision.message == f"live cap 20->{target} sequences: the manifest allows {allowed}"


def preempting(ran: int, preempted: int = 50, again: float = 0.0, usage: float = 1.0, **changes: Any) -> Signals:
    """Two replicas that run ``ran`` sequences each; 100 requests end, and a share of the tokens is computed again."""
    load = ReplicaLoad(ran, usage, None, peak_running=ran, kv_peak_usage=usage, kv_per_sequence=usage / ran)
    loads = (load, load)
    counts = {"finished": 100, "computed_tokens": 1000, "recomputed_tokens": round(1000 * again)}
    values = {"waiting": 50, "running": 2 * ran, "peak_running": ran, "kv_peak_usage": usage, "replicas": loads}
    return seen(preempted=preempted, **{**counts, **values, **changes})


@given(st.integers(5, 48), st.integers(5, 100), st.floats(0, 1), st.floats(0.5, 1))
def test_a_cut_leaves_what_fills_memory_less_what_is_computed_again_or_goes_by_the_cost(
    ran: int, preempted: int, again: float, usage: float
) -> None:
    storm = preempting(ran, preempted, again, usage)
    decision = decide(policy(concurrency=RATE), storm, law_state(2, cap := max(ran, 30)), 0.0).live_cap
    assert decision is not None
    share = min(storm.recomputed_share, preempted / 100)
    by_cost = ran * (1 - preempted / 100) if ran == cap else 0
    room = max(min(1 / (usage / ran), ran - 1) * (1 - share), by_cost)
    assert decision.target == max(1, min(cap - 1, int(room)))


def test_a_cut_for_few_preemptions_is_a_small_one() -> None:
    """Six of a hundred, in a minute in which sequences are so large that half of as many fill memory."""
    few = preempting(20, 8, usage=1.0)
    load = replace(few.replicas[0], kv_per_sequence=0.1)
    decision = decide(policy(concurrency=RATE), replace(few, replicas=(load, load)), law_state(2, 20), 0.0).live_cap
    assert decision is not None
    assert decision.target == 18


def test_sequences_that_have_not_ended_count_by_what_they_hold_now() -> None:
    """Fewer end in a window than run at a slow engine; at its begin they are young and hold little."""
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency=RATE)
    young = preempting(18, 0, usage=0.5, finished=0, ready=1, window_seconds=30.0)
    state = decide(loop, young, law_state(1, 48), 0.0).state
    old = preempting(9, 13, usage=1.0, finished=4, ready=1, peak_running=18, window_seconds=30.0)
    assert decide(loop, old, state, 30.0).state.live_cap == 9, "and not the 17 that would run if they were young"


def test_a_cut_is_judged_when_it_is_through() -> None:
    """What ran above the new cap ends in its own time: until then it is no sign that the cap is still too high."""
    loop = policy(concurrency=RATE)
    state = first_state(loop, 0.0, replicas=2, live_cap=48)
    storm = preempting(40, 30, 0.1, window_seconds=30.0)
    state = decide(loop, storm, state, 0.0).state
    assert state.live_cap == 35
    for now in range(5, 65, 5):
        decision = decide(loop, replace(storm, above_cap=4, peak_running=39), state, float(now))
        assert decision.live_cap is not None
        assert (decision.live_cap.action, decision.live_cap.reason) == ("Hold", Reason.STABILIZING)
        assert "4 sequences above the cap" in decision.live_cap.message
        state = decision.state
    through = preempting(35, 30, 0.1, window_seconds=30.0)
    for now in range(65, 95, 5):
        state = decide(loop, through, state, float(now)).state
        assert state.live_cap == 35, "the window begins when it is through"
    assert decide(loop, through, state, 95.0).state.live_cap == 30


@given(st.integers(2, 40), st.integers(1, 400))
def test_the_loop_settles_at_the_most_that_hold_and_stays(most: int, harsh: int) -> None:
    """A pool that preempts no request up to ``most`` sequences, beyond them more, and holds a quarter more of them."""
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency=RATE)
    state, caps = first_state(loop, 0.0, live_cap=48), []
    for number in range(240):
        ran = min(state.live_cap, most * 5 // 4 + 1)
        preempted = min(100, 10 + harsh * (ran - most)) if ran > most else 0
        load = preempting(ran, preempted, 0.2 * (ran > most), min(1.0, 0.8 * ran / most), ready=1, window_seconds=30.0)
        state = decide(loop, replace(load, replicas=load.replicas[:1]), state, number * 5.0).state
        caps.append(state.live_cap)
    assert set(caps[-40:]) == {most}, caps


def test_a_cap_that_failed_with_heavier_requests_does_not_bound_lighter_ones() -> None:
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency=RATE)
    state = decide(loop, preempting(12, 60, 0.3), law_state(1, 48), 0.0).state
    assert state.live_cap == 7
    state = decide(loop, preempting(7, 0, usage=0.6), state, 5.0).state
    same = decide(loop, preempting(7, 0, usage=0.5, finished=1000), state, 10.0).state
    assert same.live_cap <= 11, "one less than what failed"
    light = preempting(7, 0, usage=0.05, finished=1000)
    for now in (10.0, 15.0, 20.0):
        state = decide(loop, light, state, now).state
    assert state.live_cap > 12


def test_a_cut_goes_below_what_lighter_requests_kept() -> None:
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency=RATE)
    lighter = decide(loop, preempting(20, 0, usage=0.2), law_state(1, 40), 0.0).state
    heavy = preempting(30, 70, 0.6, usage=1.0)
    assert decide(loop, heavy, lighter, 60.0).state.live_cap == 11
    alike = decide(loop, preempting(20, 0, usage=0.7), law_state(1, 40), 0.0).state
    assert decide(loop, heavy, alike, 60.0).state.live_cap == 20


def test_trials_fade() -> None:
    """A cap that failed is tried again when what it did was long ago."""
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency=RATE)
    state = decide(loop, preempting(12, 60, 0.3), law_state(1, 12), 0.0).state
    caps = [state.live_cap]
    for number in range(1, 12):
        calm = preempting(caps[-1], 0, usage=caps[-1] / 16, window_seconds=600.0)
        state = decide(loop, calm, state, 700.0 * number).state
        caps.append(state.live_cap)
    assert max(caps[:4]) == 11, caps
    assert caps[-1] > 12, caps


def late(usage: float = 1.0, running: float = 30.0, **changes: Any) -> tuple[Signals, LawState]:
    """Tokens 80 ms apart, half of the requests preempted, and steps of 10 ms + 1 ms a sequence."""
    replicas = tuple(ReplicaLoad(running, usage, 0.08, decoding(0.01, 0.001)) for _ in range(2))
    fields = {"finished": 100, "preempted": 50, "window_seconds": 60.0, "peak_running": 40, "kv_peak_usage": 1.0}
    signals = seen(waiting=9, replicas=replicas, **{**fields, **changes})
    model = ReplicaModel()
    for _ in range(9):
        model = model.observe(signals, 5.0)
    return signals, law_state(2, 48, learnt=0.0, model=model)


def goodput(signals: Signals, state: LawState, limit: int = 60) -> LoopDecision:
    made = decide(policy(slo={"itlP95Milliseconds": limit}), signals, state, 0.0).live_cap
    assert made is not None
    return made


def test_with_goodput_preemptions_that_cost_little_time_cut_nothing() -> None:
    """However many are preempted, and however late tokens come for it."""
    assert goodput(*late()).target == 48
    assert goodput(*late(computed_tokens=1000, recomputed_tokens=600)).target == 48, "no prompt was timed"
    signals, state = late()
    rate = decide(policy(concurrency=RATE, slo={"itlP95Milliseconds": 60}), signals, state, 0.0).live_cap
    assert rate is not None
    assert rate.reason is Reason.PREEMPTION_ABOVE_TARGET


@pytest.mark.parametrize(("again", "target"), [(0, 48), (400, 48), (3000, 39)])
def test_with_goodput_the_time_of_tokens_computed_again_cuts_the_cap(again: int, target: int) -> None:
    """Steps take 10 ms and 1 ms a token: 400 tokens computed again in 10 s of steps are 4 %."""
    steps = [(StepWork(decode_sequences=n, prefill_tokens=p, prefill_pairs=0), 0.01 + 0.001 * (n + p))
             for n, p in ((20, 0), (60, 100), (30, 300))] * 10  # fmt: skip
    seconds = sum(each for _, each in steps)
    loads = tuple(ReplicaLoad(40, 1.0, 0.01, step_sums(steps), 40, 1.0, 1 / 40) for _ in range(2))
    signals = preempting(40, 50, replicas=loads, recomputed_tokens=round(again * seconds / 10), computed_tokens=10**5)
    model = ReplicaModel()
    for _ in range(9):
        model = model.observe(signals, 5.0)
    made = decide(policy(), signals, law_state(2, 48, learnt=0.0, model=model), 0.0).live_cap
    assert made is not None
    assert made.target == target, made.message
    if target < 48:
        assert "of the time to compute tokens again, target 5.0%" in made.message
    early = decide(policy(), signals, law_state(2, 48, learnt=0.0), 0.0)
    assert early.state.live_cap == 48
    later = replace(early.state, models=replace(early.state.models, replica=model))
    made = decide(policy(), signals, later, 5.0).live_cap
    assert made is not None
    assert made.target == target, "a window counts once the time of a token is known"


def test_with_goodput_long_steps_cut_the_cap() -> None:
    """30 ms are the step of 20 sequences, at 10 ms + 1 ms each; a cut takes no more than a fifth."""
    made = goodput(*late(preempted=0), limit=30)
    assert (made.target, made.reason) == (38, Reason.LATENCY_ABOVE_TARGET)


def test_goodput_is_raised_while_requests_wait_however_full_memory_is() -> None:
    """Tokens computed twice cost less than places that stay empty: no cap below the highest serves more."""
    replicas = tuple(ReplicaLoad(running=18, kv_usage=1.0, inter_token_seconds=None) for _ in range(2))
    load = seen(waiting=9, finished=100, preempted=50, peak_running=20, kv_peak_usage=1.0, replicas=replicas)
    state, caps = law_state(replicas=2, live_cap=20), []
    for now in range(0, 60, 15):
        state = decide(policy(), load, state, float(now)).state
        caps.append(state.live_cap)
    assert caps == [34, 41, 45, 48]


def test_goodput_is_raised_no_further_than_steps_allow() -> None:
    """60 ms are the step of 50 sequences, at 10 ms + 1 ms each, and 35 ms that of 25, or nearly."""
    signals, state = late()
    calm = replace(signals, replicas=tuple(replace(load, inter_token_seconds=0.02) for load in signals.replicas))
    low = state.with_loop(LIVE_CAP, target=20)
    assert goodput(calm, low).target == 34
    assert goodput(calm, low, limit=35).target == 24
    at_limit = goodput(calm, state.with_loop(LIVE_CAP, target=25), limit=35)
    assert (at_limit.target, at_limit.reason) == (25, Reason.LATENCY_ABOVE_TARGET)


def test_after_a_cut_the_cap_rests() -> None:
    state = law_state(replicas=2, live_cap=20, cap_changed=0.0)
    load = seen(waiting=9, finished=100, window_seconds=30.0)
    reasons = [decide(policy(), load, state, now).live_cap for now in (30.0, 35.0)]
    assert [made.reason for made in reasons if made is not None] == [Reason.STABILIZING, Reason.HEADROOM_AVAILABLE]
