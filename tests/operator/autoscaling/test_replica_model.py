"""What is learnt follows requests that change: larger ones at once where memory runs out, smaller ones slowly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.autoscaling.demand import estimate_demand
from paternoster_operator.autoscaling.replica_model import SHORT, ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals


def look(running: float, kv_usage: float, *, replicas: int = 2, **rest: int) -> Signals:
    loads = (ReplicaLoad(running, kv_usage, 0.02),) * replicas
    total = int(running * replicas)
    return Signals(ready=replicas, fresh=True, running=total, replicas=loads, flow_seconds=30.0, **rest)


def after(signals: Signals, looks: int, model: ReplicaModel | None = None) -> ReplicaModel:
    model = model or ReplicaModel()
    for _ in range(looks):
        model = model.observe(signals, 5.0)
    return model


def test_grown_sequences_count_at_once_where_memory_runs_short() -> None:
    short = after(look(100, 0.2), 100)
    assert short.kv_per_sequence == pytest.approx(0.002)
    grown = short.observe(look(100, 0.8), 5.0)
    assert grown.kv_per_sequence == pytest.approx(0.008)


def test_the_long_ones_left_after_a_burst_do_not_pass_for_all() -> None:
    usual = after(look(100, 0.4), 100)
    left = usual.observe(look(10, 0.2), 5.0)
    assert left.kv_per_sequence == pytest.approx(0.004, rel=0.1)


def test_young_sequences_do_not_make_it_forget() -> None:
    usual = after(look(100, 0.8), 100)
    young = usual.observe(look(200, 0.6), 5.0)
    assert young.kv_per_sequence is not None
    assert young.kv_per_sequence > 0.9 * 0.008


@given(
    before=st.tuples(st.floats(1, 256), st.floats(0.01, 1)),
    now=st.tuples(st.floats(1, 256), st.floats(SHORT + 0.01, 1)),
)
def test_in_a_filling_pool_no_sequence_is_taken_for_smaller_than_it_is(
    before: tuple[float, float], now: tuple[float, float]
) -> None:
    learnt = after(look(*before), 20).observe(look(*now), 5.0)
    assert learnt.kv_per_sequence is not None
    assert learnt.kv_per_sequence >= now[1] / now[0] * (1 - 1e-9)


def test_demand_is_never_less_than_what_runs() -> None:
    """Answers that grew eight times as long: those of the last minutes say little, what runs says all."""
    short = after(look(20, 0.1, arrived=300, departed=300, generated=30_000), 60)
    assert short.tokens_per_answer == pytest.approx(100)
    longer = look(60, 0.3, arrived=60, departed=40, generated=32_000)
    demand = estimate_demand(longer, short, 100.0)
    assert demand.steady >= longer.mean_running == 120
