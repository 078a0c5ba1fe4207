"""The engine's thread: sleeps when idle, reports each step once, survives what goes wrong."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from paternoster_contract.http import paths
from paternoster_engine.core.batch import Batch, StepOutput
from paternoster_engine.core.errors import PromptTooLong, QueueFull
from paternoster_engine.core.kv.cache_events import BlocksStored, CacheCleared, CacheEvent, CacheEvents
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.server.loop import EngineLoop, LoopStopped


def _request(name: str, max_tokens: int = 5) -> Request:
    return Request(RequestSpec(name, [1, 2, 3], SamplingParams(max_tokens=max_tokens)))


async def _outputs(loop: EngineLoop, requests: list[Request]) -> list[StepOutput]:
    """Everything that is delivered until all have ended."""
    arrived: asyncio.Queue[StepOutput] = asyncio.Queue()
    await loop.submit(requests, arrived.put_nowait)
    outputs, open_ = [], len(requests)
    while open_:
        outputs.append(await arrived.get())
        open_ -= outputs[-1].finish_reason is not None
    return outputs


async def test_delivers_every_token_and_one_end(serve: Any) -> None:
    async with serve() as server:
        outputs = await _outputs(server.loop, [_request("a"), _request("b")])
        for name in "ab":
            own = [output for output in outputs if output.request.request_id == name]
            assert [output.token for output in own] == list(server.runner.tokens[:5])
            assert [output.finish_reason for output in own] == [None] * 4 + [FinishReason.LENGTH]


async def test_it_tells_how_long_ago_its_last_request_was(serve: Any) -> None:
    now = 100.0
    async with serve(clock=lambda: now) as server:
        assert server.loop.idle_seconds is None, "it had none yet"
        server.runner.gate.clear()
        pending = asyncio.create_task(_outputs(server.loop, [_request("a")]))
        await asyncio.to_thread(server.runner.entered.wait)
        now += 30
        assert server.loop.idle_seconds == 0.0
        server.runner.gate.set()
        await pending
        await server.loop.call_in_loop(lambda: None)
        now += 7
        assert server.loop.idle_seconds == 7.0
        assert (await server.client.get("/stats")).json()["idle_seconds"] == 7.0


async def test_one_call_into_asyncio_a_step(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as server:
        delivered: list[int] = []
        deliver_all = server.loop._deliver_all
        monkeypatch.setattr(
            server.loop, "_deliver_all", lambda outputs: (delivered.append(len(outputs)), deliver_all(outputs))
        )
        server.runner.gate.clear()
        pending = asyncio.create_task(_outputs(server.loop, [_request(name) for name in "abc"]))
        await asyncio.to_thread(server.runner.entered.wait)
        server.runner.gate.set()
        await pending
        assert delivered == [3] * 5


async def test_all_or_none_are_admitted(serve: Any) -> None:
    async with serve(max_queued_requests=2) as server:
        with pytest.raises(QueueFull):
            await server.loop.submit([_request(name) for name in "abc"], lambda output: None)
        assert not await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.has_work)
        assert len(await _outputs(server.loop, [_request("a")])) == 5


async def test_an_aborted_request_ends_before_the_next_step(serve: Any) -> None:
    async with serve() as server:
        delivered: list[StepOutput] = []
        server.runner.gate.clear()
        request = _request("a", max_tokens=100)
        await server.loop.submit([request], delivered.append)
        await asyncio.to_thread(server.runner.entered.wait)
        server.loop.abort(["a"])
        server.runner.gate.set()
        assert await server.loop.call_in_loop(lambda: request.finished)
        assert request.finish_reason is FinishReason.ABORT
        assert len(request.output) <= 1
        assert delivered == []


async def test_what_another_engine_admitted_does_not_wait_for_the_step_under_way(serve: Any) -> None:
    async with serve() as server:
        server.runner.gate.clear()
        first = asyncio.create_task(_outputs(server.loop, [_request("a")]))
        await asyncio.to_thread(server.runner.entered.wait)
        moved, long = _request("b"), _request("c", max_tokens=10**6)
        for request in (moved, long):
            request.status = RequestStatus.PREEMPTED
        moved.output += [7, 8]
        arrived: asyncio.Queue[StepOutput] = asyncio.Queue()
        await server.loop.submit([moved], arrived.put_nowait)
        with pytest.raises(PromptTooLong):
            await server.loop.submit([long], arrived.put_nowait)
        assert not moved.finished
        assert not first.done()
        server.runner.gate.set()
        assert len(await first) == 5
        outputs = [await arrived.get() for _ in range(3)]
        assert [output.request for output in outputs] == [moved] * 3
        assert outputs[-1].finish_reason is FinishReason.LENGTH


async def test_what_cannot_be_queued_after_all_ends_as_the_engine_does(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as server:

        def refuse(*_: Request, **__: object) -> None:
            raise ValueError("a bug")

        monkeypatch.setattr(server.loop.engine.scheduler, "add", refuse)
        moved = _request("b")
        moved.status = RequestStatus.PREEMPTED
        (output,) = await _outputs(server.loop, [moved])
        assert (output.token, output.finish_reason) == (None, FinishReason.ABORT)


async def test_a_failed_step_ends_its_requests_and_the_loop_goes_on(serve: Any) -> None:
    async with serve(broken_steps=[1]) as server:
        (output,) = await _outputs(server.loop, [_request("a")])
        assert (output.token, output.finish_reason) == (None, FinishReason.ERROR)
        assert len(await _outputs(server.loop, [_request("b")])) == 5


async def test_a_fault_outside_of_the_model_ends_what_runs(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as server:
        scheduler = server.loop.engine.scheduler
        schedule = scheduler.schedule

        def broken(now: float) -> Batch:
            monkeypatch.setattr(scheduler, "schedule", schedule)
            raise RuntimeError("a bug")

        monkeypatch.setattr(scheduler, "schedule", broken)
        (output,) = await _outputs(server.loop, [_request("a")])
        assert output.finish_reason is FinishReason.ERROR
        assert len(await _outputs(server.loop, [_request("b")])) == 5


async def test_a_lost_runner_ends_what_runs_with_an_error_and_is_told(serve: Any) -> None:
    async with serve() as server:
        server.runner.gate.clear()
        outputs = asyncio.create_task(_outputs(server.loop, [_request("a", max_tokens=100)]))
        await asyncio.to_thread(server.runner.entered.wait)
        assert not server.loop.lost.done()
        server.runner.fault = "rank 1 ended"
        server.runner.gate.set()
        assert (await outputs)[-1].finish_reason is FinishReason.ERROR
        assert await server.loop.lost == "rank 1 ended"
        with pytest.raises(LoopStopped):
            await server.loop.submit([_request("b")], lambda output: None)


async def test_sleeps_while_idle(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits of an idle loop are long ones."""
    async with serve() as server:
        pauses: list[float] = []
        take_commands = server.loop._take_commands
        monkeypatch.setattr(
            server.loop, "_take_commands", lambda pause: (pauses.append(pause), take_commands(pause))[1]
        )
        await _outputs(server.loop, [_request("a")])
        await server.loop.call_in_loop(lambda: pauses.clear())
        await server.loop.call_in_loop(lambda: None)
        await server.loop.call_in_loop(lambda: None)
        assert set(pauses) == {1.0}


async def test_a_forced_preemption_is_not_a_stall(serve: Any) -> None:
    """A step that only preempts computes nothing, and still the work goes on."""
    async with serve(force_preempt_every=2, prefix_cache=0) as server:
        outputs = await _outputs(server.loop, [_request("a")])
        assert [output.token for output in outputs] == list(server.runner.tokens[:5])


async def test_the_end_of_the_loop_is_told(serve: Any) -> None:
    async with serve() as server:
        server.runner.gate.clear()
        pending = asyncio.create_task(_outputs(server.loop, [_request("a", max_tokens=100)]))
        await asyncio.to_thread(server.runner.entered.wait)
        stopping = asyncio.create_task(server.loop.stop())
        await asyncio.sleep(0)
        server.runner.gate.set()
        await stopping
        outputs = await pending
        assert outputs[-1].finish_reason is FinishReason.ABORT
        with pytest.raises(LoopStopped):
            await server.loop.call_in_loop(lambda: None)


async def test_answers_come_behind_the_cache_events_of_their_step(serve: Any) -> None:
    """A client that has its answer finds the blocks of its prompt in a replay, and none behind a reset."""
    async with serve() as server:
        published: list[CacheEvent] = []

        def publish_slowly(events: Sequence[CacheEvent]) -> None:
            time.sleep(0.2)  # in the engine's thread, while the client could read an answer
            published.extend(events)

        server.loop._publish_events = publish_slowly
        server.loop.engine.scheduler.pool.events = CacheEvents()
        body = {"model": "scripted", "prompt": [5] * 24, "max_tokens": 1}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
        assert [len(event.keys) for event in published if isinstance(event, BlocksStored)] == [3]
        assert (await server.admin.post(paths.ADMIN_RESET_PREFIX_CACHE)).status_code == 200
        assert isinstance(published[-1], CacheCleared)
