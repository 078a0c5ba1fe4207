"""Windows over counters that may begin anew, or that an engine does not report: then a loop holds and says so."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import decide, law_state, policy, seen

from paternoster_contract.stats import EngineState, EngineStats, Unreported
from paternoster_operator.autoscaling.decision import Reason
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning
from paternoster_operator.autoscaling.windows import SignalWindows

STALE_SECONDS = DEFAULT_TUNING.stale_seconds

COUNTERS = [name for name in EngineStats.model_fields if name.endswith("_total")]


def stats(instance: str = "a", **values: Any) -> EngineStats:
    fields = dict.fromkeys(COUNTERS, 0) | {
        "instance": instance, "model": "m", "state": EngineState.READY, "started_at": 0, "time": 0,
        "last_tick_age_seconds": 0, "capacity": 16, "live_cap": 16, "running": 0, "waiting": 0, "kv_block_size": 16,
        "kv_blocks": 100, "kv_blocks_used": 0, "kv_blocks_cached": 0, "kv_projected_peak": 0,
    }  # fmt: skip
    return EngineStats.model_validate(fields | values)


class Windows:
    """The windows of a fleet to which samples come one by one."""

    def __init__(self, keep_seconds: float = 600.0) -> None:
        self.windows = SignalWindows(Tuning(window_seconds=keep_seconds))
        self.pods: set[str] = set()

    def observe(self, pod: str, stats: EngineStats, now: float) -> None:
        self.pods.add(pod)
        self.windows.observe(Observation(now, 1, (), self.pods, (), {pod: stats}))

    def observe_gateways(self, requests: dict[str, int], now: float) -> None:
        self.windows.observe(Observation(now, 1, (), self.pods, (), {}, gateway_requests=requests))

    def summarize(self, *, window_seconds: float, now: float, ready_pods: list[str]) -> Signals:
        self.windows.observe(Observation(now, 1, ready_pods, self.pods, (), {}))
        windows = replace(self.windows, tuning=Tuning(window_seconds=window_seconds))
        return windows.summarize_signals()


def test_counts_within_the_window_only() -> None:
    windows = Windows()
    for second in range(0, 60, 5):
        windows.observe("p", stats(requests_finished_total=second, generation_tokens_total=second * 10), second)
    signals = windows.summarize(window_seconds=20, now=55, ready_pods=["p"])
    assert signals.finished == 20, "what happened before the window began does not count"
    assert signals.generation_tokens_per_second == 10.0
    assert signals.fresh


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=20))
def test_restarts_never_make_a_count_negative_and_lose_nothing(steps: list[tuple[int, bool]]) -> None:
    """Each step finishes some requests; before some of them the engine restarts and counts from zero."""
    windows = Windows()
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


def test_a_counter_that_falls_within_one_process_begins_anew_and_no_other_does() -> None:
    """All sums over steps begin anew together, as they are measured together."""
    windows = Windows()
    for second, finished, generated, steps, seconds in (
        (0, 0, 0, 10.0, 10.0),
        (5, 50, 500, 20.0, 11.0),
        (10, 3, 600, 4.0, 12.0),
        (15, 5, 700, 6.0, 13.0),
        (20, 2, 800, 7.0, 14.0),
    ):
        sums = [steps, *[0.0] * 4, seconds, *[0.0] * 15]
        counts = {"requests_finished_total": finished, "generation_tokens_total": generated, "step_sums": sums}
        windows.observe("p", stats(**counts), second)
    signals = windows.summarize(window_seconds=20, now=20, ready_pods=["p"])
    assert (signals.finished, signals.generated) == (50 + 3 + 2 + 2, 800)
    (load,) = signals.replicas
    assert (load.step_sums[0], load.step_seconds) == ((20 - 10) + 7, (11 - 10) + 14)


def test_a_sum_of_counters_that_dips_is_no_growth() -> None:
    windows = Windows()
    for second, computed in ((0, 100_000), (5, 100_010), (10, 100_009), (15, 100_020)):
        windows.observe("p", stats(generation_tokens_total=computed), second)
    assert windows.summarize(window_seconds=15, now=15, ready_pods=["p"]).generated == 20


def test_sums_over_steps_that_vanish_are_no_growth_and_no_fall() -> None:
    windows = Windows()
    for second, sums in ((0, [5.0] * 21), (5, [9.0] * 21), (10, []), (15, [1.0] * 21)):
        windows.observe("p", stats(step_sums=sums), second)
    (load,) = windows.summarize(window_seconds=15, now=15, ready_pods=["p"]).replicas
    assert load.step_sums == (5.0,) * 21


@pytest.mark.parametrize("field", ["requests_total", "requests_finished_total"])
def test_a_request_is_seen_in_a_counter_that_began_anew(field: str) -> None:
    windows = Windows()
    for second, count in ((0, 7), (5, 7), (10, 2), (15, 2), (20, 0)):
        windows.observe("p", stats(**{field: count}), second)
    assert windows.summarize(window_seconds=30, now=20, ready_pods=["p"]).last_request == 10, "a fall to 0 is none"


def test_a_gateway_whose_answer_has_no_room_for_a_model_is_no_burst_when_it_has() -> None:
    windows = Windows()
    for second, count in ((0, 1000), (5, 1000), (10, 0), (15, 1003)):
        windows.observe("p", stats(requests_rejected_full_total=1000 * second), second)
        windows.observe_gateways({"g": count}, second)
    assert windows.summarize(window_seconds=30, now=15, ready_pods=["p"]).arrived == 3


@given(st.lists(st.integers(1, 400), min_size=3, max_size=20), st.integers(5, 60))
def test_a_gap_in_the_samples_is_no_burst(gaps: list[int], window: int) -> None:
    """Two requests a second, however irregularly they are looked at: those of the window count, and no more."""
    windows, now = Windows(keep_seconds=120), 0
    for gap in gaps:
        windows.observe("p", stats(requests_total=2 * now), now)
        now += gap
    windows.observe("p", stats(requests_total=2 * now), now)
    signals = windows.summarize(window_seconds=window, now=now, ready_pods=["p"])
    assert signals.arrived == 2 * min(window, now)
    assert signals.arrival_rate == pytest.approx(2 * min(window, now) / window)


@pytest.mark.parametrize("silent", [5, 10, STALE_SECONDS])
def test_a_few_missing_samples_are_no_pause(silent: float) -> None:
    windows = Windows()
    for second in range(0, 61, 5):
        windows.observe("p", stats(requests_total=2 * second), second)
    assert windows.summarize(window_seconds=30, now=60 + silent, ready_pods=["p"]).arrived == 60
    assert windows.summarize(window_seconds=30, now=60 + STALE_SECONDS + 1, ready_pods=["p"]).arrived < 60


def test_a_clock_set_back_moves_the_samples_with_it() -> None:
    windows = Windows()
    for second in range(0, 301, 5):
        windows.observe("p", stats(requests_total=2 * second), second if second < 300 else second - 3600)
    assert windows.summarize(window_seconds=30, now=-3300, ready_pods=["p"]).arrived == 60


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 100), st.booleans()), min_size=2, max_size=20))
def test_windows_side_by_side_count_everything_once(steps: list[tuple[int, int, bool]]) -> None:
    windows, now, counter, instance, all_of_it = Windows(keep_seconds=1e9), 0, 0, 0, 0
    windows.observe("p", stats("0"), 0)
    for gap, done, restart in steps:
        now += gap
        counter, instance = (0, instance + 1) if restart else (counter, instance)
        counter += done
        all_of_it += done
        windows.observe("p", stats(str(instance), requests_total=counter), now)
    grown = [windows.summarize(window_seconds=s, now=now, ready_pods=["p"]).arrived for s in range(now + 1)]
    assert grown == sorted(grown)
    assert (grown[0], grown[-1]) == (0, all_of_it)


def test_what_full_queues_refuse_has_arrived() -> None:
    """Thirty of 130 requests were refused, each by both engines; the gateway has counted them once."""
    windows = Windows()
    for second, part in ((0, 0.0), (30, 1.0)):
        for pod in ("p", "q"):
            counts = {"requests_total": int(50 * part), "requests_rejected_full_total": int(30 * part)}
            windows.observe(pod, stats(**counts), second)
    by_engines = windows.summarize(window_seconds=30, now=30, ready_pods=["p", "q"])
    assert (by_engines.arrived, by_engines.refused) == (160, 60)
    for second, part in ((0, 0.0), (30, 1.0)):
        windows.observe_gateways({"g": int(130 * part), "h": 0}, second)
    signals = windows.summarize(window_seconds=30, now=30, ready_pods=["p", "q"])
    assert (signals.arrived, signals.refused, signals.arrival_rate) == (130, 30, 130 / 30)


def test_what_gateways_refuse_for_other_reasons_is_no_demand() -> None:
    windows = Windows()
    for second, count, came in ((0, 0, 0), (30, 20, 500)):
        windows.observe("p", stats(requests_total=count, requests_rejected_total=came), second)
        windows.observe_gateways({"g": came}, second)
    signals = windows.summarize(window_seconds=30, now=30, ready_pods=["p"])
    assert (signals.arrived, signals.refused) == (20, 0)


def test_a_gateway_that_began_anew_or_was_silent_is_no_burst() -> None:
    windows = Windows()
    for second in (*range(0, 101, 5), 400):
        windows.observe("p", stats(requests_total=second, requests_rejected_full_total=second), second)
        windows.observe_gateways({"g": 2 * second} if second <= 100 else {"g": 2 * second, "new": 10_000}, second)
    signals = windows.summarize(window_seconds=30, now=400, ready_pods=["p"])
    assert (signals.arrived, signals.refused) == (60, 30)


def test_a_gateway_that_ended_does_not_stop_the_counting() -> None:
    """For minutes the windows have its last sample, before the window of each look."""
    windows = Windows()
    for second in range(0, 101, 5):
        windows.observe("p", stats(requests_total=second), second)
        windows.observe_gateways({"ended" if second <= 50 else "begun": second}, second)
    signals = windows.summarize(window_seconds=30, now=100, ready_pods=["p"])
    assert (signals.arrived, signals.refused) == (30, 0)


def test_a_silent_replica_is_named_and_its_gauges_do_not_count() -> None:
    windows = Windows()
    windows.observe("old", stats(running=5), 0)
    windows.observe("new", stats(running=3), STALE_SECONDS + 1)
    signals = windows.summarize(window_seconds=30, now=STALE_SECONDS + 1, ready_pods=["old", "new", "never"])
    assert not signals.fresh
    assert signals.stale_pods == ("never", "old")
    assert signals.running == 3


def test_what_runs_above_a_cut_cap_is_counted_engine_by_engine() -> None:
    windows = Windows()
    windows.observe("p", stats(running=16, live_cap=12), 0)
    windows.observe("q", stats(running=3, live_cap=12), 0)
    windows.observe("r", stats(running=13, live_cap=12), 0)
    assert windows.summarize(window_seconds=30, now=1, ready_pods=["p", "q", "r"]).above_cap == 5


def test_what_a_sequence_held_is_the_mean_over_its_growth() -> None:
    """Ten young sequences and then five old ones are no ten of which each holds a fifteenth."""
    windows = Windows()
    for now, running, blocks in ((0, 10, 50), (5, 5, 100), (10, 0, 0)):
        windows.observe("p", stats(running=running, kv_blocks_used=blocks), now)
    (load,) = windows.summarize(window_seconds=30, now=10, ready_pods=["p"]).replicas
    assert load.kv_per_sequence == pytest.approx((0.05 + 0.2) / 2)


def test_a_replica_that_is_gone_is_forgotten() -> None:
    windows = Windows()
    windows.observe("p", stats(requests_finished_total=0), 0)
    windows.observe("p", stats(requests_finished_total=9), 5)
    windows.pods = {"q"}
    assert windows.summarize(window_seconds=30, now=6, ready_pods=[]).finished == 0
    assert windows.windows.latest_sample("p") is None


def test_preemption_rate_where_more_are_preempted_than_finish() -> None:
    windows = Windows()
    windows.observe("p", stats(), 0)
    windows.observe("p", stats(requests_preempted_total=6, requests_finished_total=2), 5)
    assert windows.summarize(window_seconds=30, now=5, ready_pods=["p"]).preemption_rate == 1.0


NOT_REPORTED = (Unreported.KV_BLOCKS, Unreported.PREEMPTIONS, Unreported.REQUESTS)
"""Numbers that an engine may not report."""


def test_the_live_cap_needs_preemptions() -> None:
    queue = {"running": 16, "waiting": 9, "peak_running": 8, "finished": 100}
    raised = decide(policy(), seen(**queue), law_state(live_cap=8), 0.0).live_cap
    assert raised is not None
    assert raised.target > 8
    held = decide(policy(), seen(**queue, unreported=NOT_REPORTED), law_state(live_cap=8), 0.0).live_cap
    assert held is not None
    assert (held.target, held.reason) == (8, Reason.NOT_REPORTED)
    assert held.message == "held, as the engines do not report preemptions"


def test_what_came_to_silent_engines_is_not_reported() -> None:
    silent = decide(policy(), seen(fresh=False, stale_pods=("a", "b")), law_state(), 0.0).replicas
    assert silent is not None
    lacking = {name for name, text in silent.inputs.items() if text == "not reported"}
    assert lacking == {"running", "waiting", "refused", "arrived", "finished", "preemptionRate", "kvUsage"}


def test_replicas_follow_what_runs_and_say_so() -> None:
    loads = (ReplicaLoad(running=48, kv_usage=0, inter_token_seconds=None),) * 2
    busy = seen(running=96, held=40, replicas=loads, arrived=30, window_seconds=30.0, unreported=NOT_REPORTED)
    made = decide(policy(), busy, law_state(), 100.0).replicas
    assert made is not None
    assert made.recommended > 2
    assert "from what runs, as the engines do not report requests" in made.message
    assert made.inputs["unreported"] == "KV blocks, preemptions, requests"


def test_requests_that_engines_do_not_report_are_those_that_came_to_gateways() -> None:
    windows = Windows()
    for second in range(0, 61, 5):
        windows.observe("p", stats(unreported=NOT_REPORTED), second)
        windows.observe_gateways({"g": 2 * second}, second)
    signals = windows.summarize(window_seconds=20, now=60, ready_pods=["p"])
    assert (signals.arrived, signals.refused, signals.finished) == (40, 0, 0)
    assert signals.unreported == tuple(sorted(NOT_REPORTED))
