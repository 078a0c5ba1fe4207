"""What one replica carries and what bounds it, a queue, a ramp of arrivals, and a clock that was set back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling import law_inputs
from tests.operator.autoscaling.law_inputs import LawState, decide, decoding, law_state

from paternoster_operator.autoscaling.control_loop import is_recent
from paternoster_operator.autoscaling.loops.demand import estimate_demand
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.trend import Arrivals, forecast_growth, record_arrivals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING


def policy(**spec: Any) -> ScalingPolicy:
    return law_inputs.policy(**{"concurrency": {"mode": "Auto", "objective": "PreemptionRate"}, **spec})


def carries(state: LawState, *, waiting: int = 0) -> str:
    # Preemptions at their target: the cap stays, so that demand is what one replica does with it.
    seen = Signals(ready=2, fresh=True, running=60, waiting=waiting, peak_running=30, finished=100, preempted=2)
    decision = decide(policy(), seen, state, 0.0)
    assert decision.state.live_cap == state.live_cap
    assert decision.replicas is not None
    return decision.replicas.inputs["replicaCapacity"]


def test_each_bound_is_told() -> None:
    calm: Any = {"replicas": 2, "since": -1e6}
    assert carries(law_state(live_cap=20, **calm)) == "48.0 sequences by max_num_seqs"
    hungry = ReplicaModel(weight=10, running=300, kv_usage=9.0)
    assert carries(law_state(live_cap=20, model=hungry, **calm)).endswith(" by KV")
    assert carries(law_state(live_cap=20, **calm), waiting=5) == "48.0 sequences by max_num_seqs", "a cut is no demand"


def test_a_queue_is_demand_only_while_the_pace_is_unknown() -> None:
    """80 run and 10 wait; one request a second of 100 tokens, 0.02 s each, is no reason for more than what runs."""
    loads = (ReplicaLoad(20.0, 0.3, 0.02, step_sums=decoding(0.01, 0.0005)),) * 4
    queue = Signals(
        ready=4, fresh=True, running=80, waiting=10, peak_running=20, finished=100, preempted=2, generated=10_000,
        replicas=loads, window_seconds=30.0, arrived=30, startup_seconds=30.0,
    )  # fmt: skip
    learnt = ReplicaModel()
    for _ in range(10):
        learnt = learnt.observe(queue, 5.0)
    assert learnt.step_seconds(48.0) is not None
    for model, demand in ((ReplicaModel(), 90), (learnt, 80)):
        decision = decide(policy(), queue, law_state(replicas=4, live_cap=20, model=model, learnt=100.0), 100.0)
        assert decision.replicas is not None
        assert decision.replicas.message.startswith(f"demand {demand} sequences"), decision.replicas.message


def growth(rates: list[float], window_seconds: float = 30.0) -> float:
    """Foretold for two minutes, from the rate of a window at each look of five seconds."""
    arrivals: Arrivals = ()
    for index, rate in enumerate(rates):
        signals = Signals(arrived=round(rate * window_seconds), window_seconds=window_seconds)
        arrivals = record_arrivals(arrivals, 5.0 * index, signals, DEFAULT_TUNING)
    return forecast_growth(arrivals, 120.0, window_seconds, DEFAULT_TUNING)


def test_a_ramp_goes_on_and_a_step_does_not() -> None:
    """Over five minutes from 5 to 11 requests a second, so to 13.4 in two more."""
    ramp = [5 + 0.02 * 5 * index for index in range(61)]
    assert growth(ramp) == pytest.approx(13.4 / 11, rel=0.02)
    assert growth(ramp, window_seconds=60.0) == pytest.approx(13.4 / 11, rel=0.02)
    assert growth([5.0] * 61) == growth([5.0] * 50 + [40.0] * 11) == growth(ramp[::-1]) == 1.0
    assert growth(ramp, window_seconds=400.0) == 1.0, "two windows that share no request are no line"


@given(st.floats(-1e6, 1e6), st.none() | st.floats(-1e6, 1e6), st.floats(0, 1e4))
def test_recent_ends_and_never_begins_in_the_future(now: float, then: float | None, seconds: float) -> None:
    recent = is_recent(now, then, seconds)
    if then is None or then > now:
        assert not recent
    else:
        assert recent == (now - then < seconds)


@st.composite
def models(draw: st.DrawFn) -> ReplicaModel:
    """Fitted to steps of any fixed cost and any cost for each sequence, also where one of them is nothing."""
    base, slope = draw(st.floats(0, 0.1)), draw(st.floats(1e-4, 0.1))
    loads = (ReplicaLoad(20.0, 0.3, 0.02, step_sums=decoding(base, slope)),)
    traffic = Signals(
        ready=1, fresh=True, running=20, replicas=loads, window_seconds=30.0, arrived=30, finished=30, generated=600
    )
    model = ReplicaModel()
    for _ in range(10):
        model = model.observe(traffic, 5.0)
    return model


@given(models(), st.floats(0.1, 16), st.floats(0.05, 1), st.integers(1, 64))
def test_an_edit_is_no_demand(model: ReplicaModel, running: float, busy: float, capacity: int) -> None:
    """What ran half a minute ago is over, whatever the engines may run at once from now on."""
    loads = (ReplicaLoad(running * busy, 0.1, 0.02, busy_share=busy),)
    seen = Signals(ready=1, fresh=True, replicas=loads, window_seconds=30.0)
    edited = policy(engine={"maxNumSeqs": capacity})
    decision = decide(edited, seen, law_state(1, capacity, model=model, learnt=100.0), 100.0)
    assert decision.replicas is not None
    assert decision.state.replicas == 1, decision.replicas.message


@given(models(), st.floats(0.02, 1), st.integers(1, 64))
def test_a_request_now_and_then_fills_no_replica(model: ReplicaModel, busy: float, capacity: int) -> None:
    """One at a time, in ``busy`` of the window: on a full replica it would be as many as are full for that share."""
    loads = (ReplicaLoad(busy, 0.1, 0.02, busy_share=busy),)
    seen = Signals(ready=1, fresh=True, replicas=loads, window_seconds=30.0, arrived=1)
    pace, steps = model.step_seconds(capacity), model.steps_per_answer
    assert pace is not None
    assert steps is not None
    arriving = seen.arrival_rate * steps * pace
    assert estimate_demand(seen, model, capacity) <= max(busy * capacity, arriving) * (1 + 1e-9)
