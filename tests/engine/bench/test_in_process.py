"""Requests through an engine in process, on a clock that only steps move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.bench.batching import MODES, BatchedScheduler, make_scheduler
from paternoster_engine.bench.in_process import InProcess
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_load.results import BenchRequest, RequestEnd, RequestResult

CONFIG = SchedulerConfig(
    max_num_seqs=4, max_batched_tokens=32, max_model_len=64, block_size=4, num_blocks=40, prefix_cache=False
)
STEP = 0.1


class Clocked(SynchronousRunner):
    """A runner, and the clock of everything: a step takes :data:`STEP` seconds."""

    def __init__(self, token: int = 7) -> None:
        self.now = 100.0
        self.slept = 0.0
        self.most = 0
        self.token = token

    def execute(self, batch: Batch) -> StepResult:
        self.now += STEP
        self.most = max(self.most, len(batch.scheduled))
        return StepResult([self.token if item.samples else None for item in batch.scheduled])

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.slept += seconds
        self.now += seconds + 1e-9


def in_process(clocked: Clocked, scheduler: Scheduler | None = None, **changes) -> InProcess:
    engine = Engine(scheduler or Scheduler(CONFIG), clocked, clock=lambda: clocked.now)
    return InProcess(engine, clock=lambda: clocked.now, sleep=clocked.sleep, **changes)


def wanted(index: int, prompt: int, output: int, arrival: float = 0.0) -> BenchRequest:
    return BenchRequest(index, [1] * prompt, output, arrival)


def test_times_are_those_of_the_steps() -> None:
    clocked = Clocked()
    (result,) = in_process(clocked).serve([wanted(0, 8, 3)])
    assert (result.outcome, result.output_tokens, result.prompt_tokens) == (RequestEnd.COMPLETED, 3, 8)
    assert result.ttft == pytest.approx(STEP)
    assert result.itls == pytest.approx([STEP, STEP])
    assert result.latency == pytest.approx(3 * STEP)


def test_an_idle_engine_sleeps_until_the_next_arrival() -> None:
    clocked = Clocked()
    first, second = in_process(clocked).serve([wanted(0, 8, 1), wanted(1, 8, 1, arrival=5.0)])
    assert second.start - first.start == pytest.approx(5.0)
    assert clocked.slept == pytest.approx(5.0 - STEP)


def test_max_concurrency_holds_arrivals_back() -> None:
    clocked = Clocked()
    results = in_process(clocked).serve([wanted(i, 4, 2) for i in range(6)], max_concurrency=2)
    assert clocked.most == 2
    assert len({result.start for result in results}) == 3


def test_duration_ends_the_taking_in_and_what_runs_is_finished() -> None:
    results = in_process(Clocked()).serve((wanted(i, 4, 2) for i in range(10**6)), max_concurrency=1, duration=1.05)
    assert len(results) == 6
    assert all(result.outcome is RequestEnd.COMPLETED for result in results)


def test_a_refusal_is_reported_and_the_others_are_served() -> None:
    reported: list[RequestResult] = []
    results = in_process(Clocked()).serve([wanted(0, 200, 5), wanted(1, 4, 2)], on_result=reported.append)
    assert [result.outcome for result in results] == [RequestEnd.REFUSED, RequestEnd.COMPLETED]
    assert "200" in results[0].error
    assert {result.index for result in reported} == {0, 1}


def test_a_broken_step_loses_its_requests_with_the_reason() -> None:
    class Broken(Clocked):
        def execute(self, batch: Batch) -> StepResult:
            raise RuntimeError("the device is gone")

    (result,) = in_process(Broken()).serve([wanted(0, 4, 2)])
    assert (result.outcome, result.error) == (RequestEnd.LOST, "the engine ended it: error")


def test_the_end_of_sequence_token_ends_a_request_unless_it_is_ignored() -> None:
    def tokens(**changes: bool) -> int:
        served = in_process(Clocked(token=5), eos_token_ids=(5,), **changes).serve([wanted(0, 4, 9)])
        return served[0].output_tokens

    assert tokens(ignore_eos=False) == 1
    assert tokens(ignore_eos=True) == 9


def test_a_batch_that_is_put_off_is_waited_for_and_not_spun_on() -> None:
    clocked = Clocked()
    config = SchedulerConfig(
        max_num_seqs=4, max_batched_tokens=32, max_model_len=64, block_size=4, num_blocks=40,
    )  # fmt: skip
    served = in_process(clocked, scheduler=BatchedScheduler(config, size=2, wait=0.5))
    (result,) = served.serve([wanted(0, 4, 1)])
    assert result.outcome is RequestEnd.COMPLETED
    assert result.latency == pytest.approx(0.5 + STEP, abs=0.01)
    assert served.steps == 1


def test_text_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="request 3: is text"):
        in_process(Clocked()).serve([BenchRequest(3, "words", 4)])


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20), st.floats(0, 3)), min_size=1, max_size=12),
    st.sampled_from(MODES),
)
def test_everyone_gets_every_token_in_every_mode(rows, mode) -> None:
    config = SchedulerConfig(max_num_seqs=4, max_batched_tokens=32, max_model_len=64, block_size=4, num_blocks=20)
    clocked = Clocked()
    requests = [wanted(i, p, o, arrival) for i, (p, o, arrival) in enumerate(sorted(rows, key=lambda row: row[2]))]
    results = in_process(clocked, scheduler=make_scheduler(mode, config)).serve(requests)
    assert [result.index for result in results] == list(range(len(rows)))
    for result, request in zip(results, requests, strict=True):
        assert result.outcome is RequestEnd.COMPLETED
        assert result.output_tokens == request.max_tokens == 1 + len(result.itls)
        assert result.ttft + sum(result.itls) == pytest.approx(result.latency)
        assert result.start >= 100.0 + request.arrival_s - 1e-6
