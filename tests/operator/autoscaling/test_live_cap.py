"""The cap loop: what it cuts to, when it raises, and that it comes below its target."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import LawState, decide, decoding, first_state, law_state, policy, seen

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
        decision = decide(policy(concurrency=RATE), seen(**load), state, 0.0).live_cap
        assert decision is not None
        return decision.reason

    assert reason(waiting=5) is Reason.HEADROOM_AVAILABLE
    assert reason(waiting=0) is Reason.WITHIN_TOLERANCE
    assert reason(waiting=5, kv_peak_usage=0.95, peak_running=20) is Reason.KV_HIGH_WATERMARK
    assert reason(waiting=5, kv_peak_usage=0.3, peak_running=20) is Reason.HEADROOM_AVAILABLE
    assert reason(waiting=5, finished=1000, preempted=12) is Reason.WITHIN_TOLERANCE
    assert reason(waiting=5, finished=1000, preempted=1) is Reason.HEADROOM_AVAILABLE
    assert reason(waiting=5, finished=2, preempted=2) is Reason.INSUFFICIENT_DATA
    state = law_state(replicas=2, live_cap=48)
    assert reason(waiting=5) is Reason.AT_CAPACITY


@pytest.mark.parametrize(("bounds", "target"), [({"max": 12}, 12), ({"min": 30}, 30)])
def test_an_edit_of_the_bounds_is_the_reason_that_is_given(bounds: dict[str, int], target: int) -> None:
    state = law_state(replicas=2, live_cap=20)
    decision = decide(policy(concurrency={"mode": "Auto", **bounds}), seen(waiting=0), state, 0.0).live_cap
    assert decision is not None
    assert (decision.target, decision.reason) == (target, Reason.BOUNDS_CHANGED)
    allowed = f"{bounds.get('min', 1)} to {bounds.get('max', 48)}"
    assert decision.message == f"live cap 20->{target} sequences: the manifest allows {allowed}"


@given(st.integers(5, 48), st.integers(5, 90), st.integers(10, 100), st.floats(0.001, 1))
def test_a_cut_leaves_what_memory_has_room_for(ran: int, decrease: int, watermark: int, share: float) -> None:
    """Down to the high-water mark of a pool that was full, or to the measured share of a sequence in it."""
    loop = policy(concurrency={**RATE, "min": 1, "decreasePercent": decrease, "kvHighWatermarkPercent": watermark})
    storm = seen(running=ran, finished=100, preempted=50, peak_running=ran, kv_peak_usage=1.0)
    for model, room in (
        (ReplicaModel(), math.inf),
        (ReplicaModel(weight=99, running=1, kv_usage=share), watermark / 100 / share),
    ):
        state = law_state(2, 48, learnt=0.0, model=model)
        decision = decide(loop, storm, state, 0.0).live_cap
        assert decision is not None
        least, fits = ran * (1 - decrease / 100), min(room, ran * watermark / 100, ran - loop.concurrency.increase_step)
        assert decision.target == max(1, min(47, int(max(least, fits)))), (least, fits)


def test_a_cut_is_judged_when_it_is_through() -> None:
    """What ran above the new cap ends in its own time: until then it is no sign that the cap is still too high."""
    loop = policy(concurrency=RATE)
    state = first_state(loop, 0.0, replicas=2, live_cap=48)
    storm = seen(running=96, finished=100, preempted=30, peak_running=48, kv_peak_usage=1.0)
    state = decide(loop, storm, state, 0.0).state
    assert state.live_cap == 43
    for now in range(5, 65, 5):
        decision = decide(loop, replace(storm, above_cap=4, running=90, peak_running=47), state, float(now))
        assert decision.live_cap is not None
        assert (decision.live_cap.action, decision.live_cap.reason) == ("Hold", Reason.STABILIZING)
        assert "4 sequences above the cap" in decision.live_cap.message
        state = decision.state
    through = replace(storm, running=86, peak_running=43, window_seconds=30.0)
    assert decide(loop, through, state, 80.0).state.live_cap == 43, "the window begins when it is through"
    assert decide(loop, through, state, 90.0).state.live_cap == 38


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


def test_with_goodput_no_preemption_cuts_the_cap() -> None:
    """However many are preempted, whatever share of the work is done twice, and however late tokens come for it."""
    assert goodput(*late()).target == 48
    assert goodput(*late(computed_tokens=1000, recomputed_tokens=600)).target == 48
    signals, state = late()
    rate = decide(policy(concurrency=RATE, slo={"itlP95Milliseconds": 60}), signals, state, 0.0).live_cap
    assert rate is not None
    assert rate.reason is Reason.PREEMPTION_ABOVE_TARGET


def test_with_goodput_long_steps_cut_the_cap() -> None:
    """30 ms are the step of 20 sequences, at 10 ms + 1 ms each; a cut takes no more than ``decreasePercent``."""
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
    reasons = [decide(policy(), seen(waiting=9, finished=100), state, now).live_cap for now in (10.0, 15.0)]
    assert [made.reason for made in reasons if made is not None] == [Reason.STABILIZING, Reason.HEADROOM_AVAILABLE]


def test_the_loop_converges_below_the_target_where_the_pool_allows_it() -> None:
    """A plant whose pool carries 14 sequences: above that a share of requests is preempted, below it none."""
    loop = policy(autoscaling={"maxReplicas": 1}, concurrency={**RATE, "min": 2})
    state = first_state(loop, 0.0, live_cap=48)
    caps = []
    for step in range(120):
        running = state.live_cap
        preempted = max(0, running - 14)
        load = seen(ready=1, running=running, waiting=100, peak_running=running, finished=30,
                    preempted=preempted, kv_peak_usage=min(1.0, running / 14))  # fmt: skip
        state = decide(loop, load, state, step * 5.0).state
        caps.append(state.live_cap)
    assert all(cap <= 15 for cap in caps[40:]), " ".join(map(str, caps))
    assert caps[-1] >= 10, "not far below what the pool carries"
