"""The engine's step on a runner that stands in for the model."""

from collections.abc import Sequence

import pytest

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner


class EchoRunner(SynchronousRunner):
    """Samples the number of tokens a request has; raises at the chosen steps."""

    def __init__(self, broken_steps: Sequence[int] = ()) -> None:
        self.broken_steps = broken_steps

    def execute(self, batch: Batch) -> StepResult:
        if batch.step in self.broken_steps:
            raise RuntimeError("the device is gone")
        return StepResult([item.stop if item.samples else None for item in batch.scheduled])


def _scheduler(*, overlap: bool = False) -> Scheduler:
    return Scheduler(
        SchedulerConfig(
            max_num_seqs=4, max_batched_tokens=8, max_model_len=64, block_size=4, num_blocks=32, overlap=overlap
        )
    )


def _request(name: str, num_prompt: int = 3, max_tokens: int = 4) -> Request:
    return Request(RequestSpec(name, [1] * num_prompt, SamplingParams(max_tokens=max_tokens)))


def test_steps_until_all_is_done() -> None:
    engine = Engine(_scheduler(), EchoRunner())
    requests = [_request("a"), _request("b", num_prompt=11)]
    for request in requests:
        engine.scheduler.add(request)
    outputs = []
    while engine.scheduler.has_work:
        outputs += engine.step()
    assert [request.output for request in requests] == [[3, 4, 5, 6], [11, 12, 13, 14]]
    assert [output.token for output in outputs if output.request is requests[1]] == [11, 12, 13, 14]
    engine.scheduler.check_integrity()


def test_idle_step_does_nothing() -> None:
    engine = Engine(_scheduler(), EchoRunner(broken_steps=range(100)))
    assert engine.step() == []


def test_a_failed_step_ends_its_requests_and_no_others() -> None:
    engine = Engine(_scheduler(), EchoRunner(broken_steps=[2]))
    engine.scheduler.add(_request("a"))
    engine.step()
    (failed,) = engine.step()
    assert (failed.request.request_id, failed.token, failed.finish_reason) == ("a", None, FinishReason.ERROR)
    engine.scheduler.add(_request("b"))
    tokens = [output.token for _ in range(4) for output in engine.step()]
    assert tokens == [3, 4, 5, 6]
    engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0


def test_seconds_are_told_apart_by_stage() -> None:
    ticks = iter(range(100))
    engine = Engine(_scheduler(), EchoRunner(), clock=lambda: float(next(ticks)))
    engine.scheduler.add(_request("a", max_tokens=1))
    engine.step()
    assert (engine.seconds.schedule, engine.seconds.forward, engine.seconds.update) == (1.0, 1.0, 1.0)


def test_steps_are_summed_for_a_fit_of_their_cost() -> None:
    """A prompt of 3 and a decode; each step asks the clock six times, and one that failed is in no sum."""
    ticks = iter(range(100))
    engine = Engine(_scheduler(), EchoRunner(broken_steps=[3]), clock=lambda: float(next(ticks)))
    engine.scheduler.add(_request("a"))
    for _ in range(3):
        engine.step()
    prompt, decode = (1, 3, 0, 3, 6), (1, 0, 1, 4, 0)
    assert engine.scheduler.counters.steps.in_seconds(1) == tuple(
        sum(row[i] * row[j] for row in ((*prompt, 5.0), (*decode, 5.0))) for i in range(6) for j in range(i, 6)
    )


@pytest.mark.parametrize("broken", [(), (1,)])
def test_a_failed_step_counts_as_forward_time(broken: tuple[int, ...]) -> None:
    ticks = iter(range(100))
    engine = Engine(_scheduler(), EchoRunner(broken), clock=lambda: float(next(ticks)))
    engine.scheduler.add(_request("a", max_tokens=1))
    engine.step()
    assert engine.seconds.forward == 1.0


def test_requests_are_taken_in_while_a_step_is_under_way() -> None:
    engine = Engine(_scheduler(overlap=True), EchoRunner())
    engine.scheduler.add(_request("a"))
    assert engine.step() == [], "a step was begun and nothing waits for it"
    engine.scheduler.add(_request("b"))
    tokens_by_request: dict[str, list[int | None]] = {"a": [], "b": []}
    while engine.scheduler.has_work:
        for output in engine.step():
            tokens_by_request[output.request.request_id].append(output.token)
    assert tokens_by_request == {"a": [3, 4, 5, 6], "b": [3, 4, 5, 6]}
    engine.scheduler.check_integrity()


def test_who_is_aborted_while_a_step_is_under_way_gets_nothing_of_it() -> None:
    engine = Engine(_scheduler(overlap=True), EchoRunner())
    request = _request("a")
    engine.scheduler.add(request)
    engine.step()
    engine.scheduler.abort("a")
    assert engine.scheduler.pool.num_used == 0
    assert engine.step() == []
    assert request.output == []
    engine.scheduler.check_integrity()


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_failed_step_that_was_begun_ahead_ends_its_requests_and_no_others(broken: int) -> None:
    engine = Engine(_scheduler(overlap=True), EchoRunner(broken_steps=[broken]))
    first, second = _request("a"), _request("b")
    for request in (first, second):
        engine.scheduler.add(request)
        while engine.scheduler.has_work:
            engine.step()
    assert first.finish_reason is FinishReason.ERROR
    assert first.output == [3, 4, 5, 6][: broken - 1]
    assert second.output == [3, 4, 5, 6]
    assert engine.scheduler.pool.num_used == 0
