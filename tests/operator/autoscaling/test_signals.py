"""Windows over counters that may begin anew."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_operator.autoscaling.signals import STALE_SECONDS, SignalWindows

COUNTERS = [name for name in EngineStats.model_fields if name.endswith("_total")]


def stats(instance: str = "a", **values: Any) -> EngineStats:
    fields = dict.fromkeys(COUNTERS, 0) | {
        "instance": instance, "model": "m", "state": EngineState.READY, "started_at": 0, "time": 0,
        "last_tick_age_seconds": 0, "capacity": 16, "live_cap": 16, "running": 0, "waiting": 0, "kv_block_size": 16,
        "kv_blocks": 100, "kv_blocks_used": 0, "kv_blocks_cached": 0, "kv_projected_peak": 0,
    }  # fmt: skip
    return EngineStats.model_validate(fields | values)


def test_counts_within_the_window_only() -> None:
    windows = SignalWindows()
    for second in range(0, 60, 5):
        windows.observe("p", stats(requests_finished_total=second, generation_tokens_total=second * 10), second)
    signals = windows.summarize(window_seconds=20, now=55, ready_pods=["p"])
    assert signals.finished == 20, "what happened before the window began does not count"
    assert signals.generation_tokens_per_second == 10.0
    assert signals.fresh


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=20))
def test_restarts_never_make_a_count_negative_and_lose_nothing(steps: list[tuple[int, bool]]) -> None:
    """Each step finishes some requests; before some of them the engine restarts and counts from zero."""
    windows = SignalWindows()
    counter, instance, expected = 0, 0, 0
    windows.observe("p", stats(str(instance)), 0)
    for number, (done, restart) in enumerate(steps, start=1):
        if restart:
            counter, instance = 0, instance + 1
        counter += done
        expected += done
        windows.observe("p", stats(str(instance), requests_finished_total=counter), number)
    now = len(steps)
    assert windows.summarize(window_seconds=now, now=now, ready_pods=["p"]).finished == expected


def test_a_silent_replica_is_named_and_its_gauges_do_not_count() -> None:
    windows = SignalWindows()
    windows.observe("old", stats(running=5), 0)
    windows.observe("new", stats(running=3), STALE_SECONDS + 1)
    signals = windows.summarize(window_seconds=30, now=STALE_SECONDS + 1, ready_pods=["old", "new", "never"])
    assert not signals.fresh
    assert signals.stale_pods == ("never", "old")
    assert signals.running == 3


def test_what_runs_above_a_cut_cap_is_counted_engine_by_engine() -> None:
    windows = SignalWindows()
    windows.observe("p", stats(running=16, live_cap=12), 0)
    windows.observe("q", stats(running=3, live_cap=12), 0)
    windows.observe("r", stats(running=13, live_cap=12), 0)
    assert windows.summarize(window_seconds=30, now=1, ready_pods=["p", "q", "r"]).above_cap == 5


def test_a_replica_that_is_gone_is_forgotten() -> None:
    windows = SignalWindows()
    windows.observe("p", stats(requests_finished_total=0), 0)
    windows.observe("p", stats(requests_finished_total=9), 5)
    windows.keep({"q"})
    assert windows.latest("p") is None
    assert windows.summarize(window_seconds=30, now=6, ready_pods=[]).finished == 0


def test_preemption_rate_where_more_are_preempted_than_finish() -> None:
    windows = SignalWindows()
    windows.observe("p", stats(), 0)
    windows.observe("p", stats(requests_preempted_total=6, requests_finished_total=2), 5)
    assert windows.summarize(window_seconds=30, now=5, ready_pods=["p"]).preemption_rate == 1.0
