"""The thread that computes steps: in order, on what block tables held when a step was submitted."""

import threading
from collections.abc import Sequence

import pytest

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.runner.worker import Worker

WAIT = 30
"""Seconds after which a thread that does not come is given up."""


class Echo(SynchronousRunner):
    """Samples the number of tokens a request has, in the threads it notes; may wait, and may fail."""

    def __init__(self, broken_steps: Sequence[int] = ()) -> None:
        self.broken_steps = broken_steps
        self.threads: set[str] = set()
        self.steps: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def execute(self, batch: Batch) -> StepResult:
        assert self.gate.wait(WAIT)
        self.threads.add(threading.current_thread().name)
        self.steps.append(batch.step)
        if batch.step in self.broken_steps:
            raise RuntimeError("the device is gone")
        return StepResult([item.stop if item.samples else None for item in batch.scheduled])


def _engine(runner: Echo) -> tuple[Engine, Worker]:
    worker = Worker(runner)
    return Engine(Scheduler(SchedulerConfig(4, 8, 64, 4, 32, overlap=True)), worker), worker


def _request(name: str, max_tokens: int = 4) -> Request:
    return Request(name, [1, 2, 3], SamplingParams(max_tokens=max_tokens))


def test_the_engine_plans_and_takes_requests_in_while_a_step_runs() -> None:
    runner = Echo()
    engine, worker = _engine(runner)
    engine.scheduler.add(_request("a"))
    runner.gate.clear()
    assert engine.step() == [], "a step was begun and nothing waits for it"
    engine.scheduler.add(_request("b"))
    runner.gate.set()
    outputs = []
    while engine.scheduler.has_work:
        outputs += engine.step()
    worker.close()
    told: dict[str, list[int | None]] = {"a": [], "b": []}
    for output in outputs:
        told[output.request.request_id].append(output.token)
    assert told == {"a": [3, 4, 5, 6], "b": [3, 4, 5, 6]}
    assert runner.threads == {"forward"}
    assert runner.steps == sorted(runner.steps)
    engine.scheduler.check_integrity()


def test_who_is_aborted_while_a_step_runs_gets_nothing_of_it() -> None:
    runner = Echo()
    engine, worker = _engine(runner)
    request = _request("a")
    engine.scheduler.add(request)
    runner.gate.clear()
    engine.step()
    engine.scheduler.abort("a")
    assert engine.scheduler.pool.num_used == 0
    runner.gate.set()
    assert engine.step() == []
    worker.close()
    assert request.output == []
    engine.scheduler.check_integrity()


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_failed_step_ends_its_requests_and_no_others(broken: int) -> None:
    runner = Echo(broken_steps=[broken])
    engine, worker = _engine(runner)
    first = _request("a")
    engine.scheduler.add(first)
    while engine.scheduler.has_work:
        engine.step()
    assert first.finish_reason is FinishReason.ERROR
    assert first.output == [3, 4, 5, 6][: broken - 1]
    second = _request("b")
    engine.scheduler.add(second)
    while engine.scheduler.has_work:
        engine.step()
    worker.close()
    assert second.output == [3, 4, 5, 6]
    assert engine.scheduler.pool.num_used == 0


def test_without_overlap_each_step_is_waited_for() -> None:
    worker = Worker(Echo())
    scheduler = Scheduler(SchedulerConfig(4, 8, 64, 4, 32))
    engine = Engine(scheduler, worker)
    request = _request("a")
    scheduler.add(request)
    while scheduler.has_work:
        engine.step()
    worker.close()
    assert request.output == [3, 4, 5, 6]
