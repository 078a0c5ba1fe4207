"""Limits that act between steps and counts that are exact, on a scheduler with vLLM's attributes."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operator.vllm_plugin.stub_scheduler import StubRequest, StubScheduler

from paternoster_vllm.engine_core import (
    END_OF_STEP,
    REQUIRED,
    ROOM,
    STEP_SUMS,
    SchedulerControl,
    Unsupported,
    call_control,
)


def requests(count: int) -> list[StubRequest]:
    return [StubRequest(f"r{n}") for n in range(count)]


def test_a_lower_cap_admits_none_until_fewer_run_and_preempts_none() -> None:
    scheduler = StubScheduler(capacity=8)
    control = SchedulerControl(scheduler)
    scheduler.waiting = requests(12)
    scheduler.schedule()
    assert len(scheduler.running) == 8
    control.set_limits({"live_cap": 2})
    scheduler.schedule()
    assert len(scheduler.running) == 8
    for _ in range(7):
        scheduler.finish_first()
    scheduler.schedule()
    report = control.report_state()
    assert (report["running"], report["waiting"], report["live_cap"], report["capacity"]) == (2, 3, 2, 8)
    assert (report["requests_finished_total"], report["preemptions_total"]) == (7, 0)


def test_a_budget_never_falls_below_a_token_for_each_that_runs() -> None:
    scheduler = StubScheduler(capacity=8, budget=16)
    control = SchedulerControl(scheduler)
    control.set_limits({"token_budget": 2})
    scheduler.waiting = requests(8)
    scheduler.schedule()
    assert scheduler.max_num_scheduled_tokens == 2
    assert scheduler.schedule().total_num_scheduled_tokens == 8
    for _ in range(7):
        scheduler.finish_first()
    scheduler.schedule()
    assert scheduler.max_num_scheduled_tokens == 2
    assert control.report_state()["token_budget"] == 2


@pytest.mark.parametrize("resumes_as_new", [False, True])
def test_counts_steps_tokens_preemptions_and_what_is_computed_again(*, resumes_as_new: bool) -> None:
    scheduler = StubScheduler()
    scheduler.resumes_as_new = resumes_as_new
    control = SchedulerControl(scheduler)
    scheduler.schedule()
    assert control.report_state()["steps_total"] == 0, "a step without tokens is none"
    scheduler.waiting = requests(2)
    for _ in range(5):
        scheduler.schedule()
    scheduler.preempt_last()
    scheduler.found_in_cache = 3
    scheduler.schedule()
    scheduler.preempt_last()
    scheduler.finish_first()
    report = control.report_state()
    assert report["steps_total"] == 6
    assert report["scheduled_tokens_total"] == 12
    assert report["preemptions_total"] == 2
    assert report["requests_preempted_total"] == 1, "one request, twice"
    assert report["tokens_lost_total"] == 5 + 4
    assert report["recomputed_tokens_total"] == 5 - 3, "the second time it has not run again yet"
    assert report["requests_finished_total"] == 1


def queue(scheduler: StubScheduler, left: int) -> SchedulerControl:
    """Whose queue admits one request in half of a second, and has ``left`` after the last step; 2.25 s are allowed."""
    control = SchedulerControl(scheduler)
    control.set_limits({"max_queue_milliseconds": 2_250})
    now = time.monotonic() - 50
    for step in range(101):
        control._pace.count_step(1, 1 if step < 100 else left, now + step / 2)
    return control


def test_there_is_room_for_those_that_wait_no_longer_than_was_set() -> None:
    scheduler = StubScheduler(capacity=8)
    control = queue(scheduler, left=0)
    assert control.report_state()[ROOM] == 8 + 4, "an idle engine, and four that wait"
    scheduler.waiting = requests(6)
    assert control.report_state()[ROOM] == 8 + 4 - 6, "the next step admits them"
    scheduler.schedule()
    assert control.report_state()[ROOM] == 8 + 4 - 6
    control.set_limits({"live_cap": 3})
    assert control.report_state()[ROOM] == 4 - 3, "three more run than may"


def test_where_requests_are_left_nothing_is_free() -> None:
    """Memory is full: three run of eight that may."""
    scheduler = StubScheduler(capacity=8)
    control = queue(scheduler, left=2)
    scheduler.running, scheduler.waiting = requests(3), requests(2)
    assert control.report_state()[ROOM] == 4 - 2
    scheduler.waiting = requests(100)
    assert control.report_state()[ROOM] == 4 - 100
    control.set_limits({"max_queue_milliseconds": 0})
    assert control.report_state()[ROOM] is None


def test_a_request_that_runs_again_is_no_admission() -> None:
    scheduler = StubScheduler(capacity=2)
    scheduler.resumes_as_new = True
    control = SchedulerControl(scheduler)
    scheduler.waiting = requests(3)
    scheduler.schedule()
    scheduler.preempt_last()
    scheduler.schedule()
    assert control.report_state()["seconds_between_admissions"] == 0


def test_wrapped_methods_return_what_they_returned() -> None:
    scheduler = StubScheduler()
    SchedulerControl(scheduler)
    assert scheduler._free_request(StubRequest("a")) == "freed a"


def test_the_report_has_the_pool_where_the_scheduler_has_one() -> None:
    scheduler = StubScheduler()
    report = SchedulerControl(scheduler).report_state()
    assert (report["kv_block_size"], report["kv_blocks"], report["kv_blocks_used"]) == (16, 10, 3)
    del scheduler.kv_cache_manager.block_pool
    assert "kv_blocks" not in SchedulerControl(scheduler).report_state()


@pytest.mark.parametrize("limits", [{"live_cap": 0}, {"live_cap": 9}, {"token_budget": 17}])
def test_a_limit_out_of_range_changes_nothing(limits: dict[str, int]) -> None:
    control = SchedulerControl(StubScheduler(capacity=8, budget=16))
    before = control.report_state()
    with pytest.raises(ValueError, match=f"{next(iter(limits))} is .*: must be 1 to"):
        control.set_limits(limits)
    assert control.report_state() == before


@pytest.mark.parametrize("name", REQUIRED)
def test_a_scheduler_without_an_attribute_is_not_steered(name: str) -> None:
    present = {each: 1 for each in REQUIRED if each != name}
    core = SimpleNamespace(scheduler=SimpleNamespace(**present))
    assert call_control(core, {"live_cap": 1}) == {"unsupported": f"the scheduler SimpleNamespace has no {name}"}


def test_a_scheduler_that_does_not_hold_a_limit_is_not_steered() -> None:
    class Rounding(StubScheduler):
        @property
        def max_num_active_reqs(self) -> int:
            return 8

        @max_num_active_reqs.setter
        def max_num_active_reqs(self, value: int) -> None:
            pass

    with pytest.raises(Unsupported, match="max_num_active_reqs was set to 7 and reads 8"):
        SchedulerControl(Rounding()).self_test()


def test_the_core_has_one_control_whose_counts_go_on() -> None:
    core = SimpleNamespace(scheduler=StubScheduler())
    first = call_control(core, {})
    core.scheduler.waiting = requests(1)
    core.scheduler.schedule()
    second = call_control(core, {"live_cap": 3})
    assert second["instance"] == first["instance"]
    assert (first["live_cap"], second["live_cap"], second["steps_total"]) == (8, 3, 1)


def test_steps_are_summed_when_their_output_is_in_the_scheduler() -> None:
    scheduler = StubScheduler()
    control = SchedulerControl(scheduler)
    scheduler.waiting = requests(2)
    begun = time.monotonic()
    first, second = scheduler.schedule(), scheduler.schedule()
    assert control.report_state()[STEP_SUMS] == [0] * 21, "none has ended"
    assert scheduler.update_from_output(first, "tokens") == "tokens of 2"
    scheduler.update_from_output(second, "tokens")
    sums = control.report_state()[STEP_SUMS]
    assert sums[:5] == [2, 0, 4, 2 + 4, 0]
    assert 0 < sums[5] <= time.monotonic() - begun
    scheduler.running.clear()
    scheduler.update_from_output(scheduler.schedule(), "nothing")
    assert control.report_state()[STEP_SUMS] == sums, "a step without tokens is none"


def test_a_scheduler_that_ends_steps_otherwise_is_steered_and_reports_no_sums() -> None:
    class Older(StubScheduler):
        update_from_output = property()

    control = SchedulerControl(scheduler := Older())
    scheduler.waiting = requests(1)
    scheduler.schedule()
    report = control.report_state()
    assert (report["steps_total"], report[STEP_SUMS]) == (1, [])


def test_steps_of_a_pipeline_overlap_and_are_not_summed() -> None:
    scheduler: Any = StubScheduler()
    scheduler.parallel_config = SimpleNamespace(pipeline_parallel_size=2)
    control = SchedulerControl(scheduler)
    scheduler.waiting = requests(1)
    scheduler.update_from_output(scheduler.schedule(), "tokens")
    assert control.report_state()[STEP_SUMS] == []
    assert END_OF_STEP not in vars(scheduler)


def test_a_step_that_is_described_otherwise_ends_the_sums_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = StubScheduler()
    control = SchedulerControl(scheduler)
    scheduler.waiting = requests(1)
    scheduler.update_from_output(scheduler.schedule(), "tokens")
    output = scheduler.schedule()
    del output.num_scheduled_tokens
    assert scheduler.update_from_output(output, "tokens") == "tokens of 1"
    scheduler.update_from_output(scheduler.schedule(), "tokens")
    assert control.report_state()[STEP_SUMS] == []
    assert [record.message for record in caplog.records if "measured no more" in record.message]
