"""The health of vLLM's engine core: by its answers, one call at a time."""

import asyncio

import pytest

from paternoster_vllm import core_watch
from paternoster_vllm.core_watch import SILENT_SECONDS, CoreWatch


class Core:
    """Answers while ``running`` is set; counts its calls."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.running.set()
        self.calls = 0
        self.fault: Exception | None = None
        self.now = 100.0

    async def call(self) -> object:
        self.calls += 1
        await self.running.wait()
        if self.fault is not None:
            raise self.fault
        return {}


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    monkeypatch.setattr(core_watch, "WAIT_SECONDS", 0.01)
    return Core()


@pytest.fixture
def watch(core: Core) -> CoreWatch:
    return CoreWatch(core.call, lambda: core.now)


async def test_answering_core_is_healthy_and_called_once_a_second(core: Core, watch: CoreWatch) -> None:
    for _ in range(10):
        assert await watch.find_fault() == ""
        core.now += 0.25
    assert core.calls == 3


async def test_silent_core_is_a_fault_once_the_call_is_old_and_healthy_when_it_answers(
    core: Core, watch: CoreWatch
) -> None:
    assert await watch.find_fault() == ""
    core.running.clear()
    core.now += 2
    assert await watch.find_fault() == "", "a step may take that long"
    core.now += SILENT_SECONDS
    assert await watch.find_fault() == "the engine core has not answered for 4 s"
    core.now += 60
    assert await watch.find_fault() == "the engine core has not answered for 64 s"
    assert core.calls == 2, "one call is under way"
    core.running.set()
    await asyncio.sleep(0)
    assert await watch.find_fault() == ""


async def test_failed_core_is_a_fault_and_is_called_again(core: Core, watch: CoreWatch) -> None:
    core.fault = RuntimeError("EngineCore encountered an issue")
    assert await watch.find_fault() == "the engine core failed: EngineCore encountered an issue"
    core.fault = None
    assert await watch.find_fault() == ""


async def test_vllm_without_the_call_is_healthy(core: Core, watch: CoreWatch) -> None:
    core.fault = LookupError("no call_utility_async")
    assert await watch.find_fault() == ""


@pytest.mark.parametrize("fault", [None, RuntimeError("dead")])
async def test_probes_at_once_have_the_answer_of_one_call(
    core: Core, watch: CoreWatch, fault: Exception | None
) -> None:
    """The kubelet's readiness and liveness probes and those of gateways come at once."""
    core.fault = fault
    wanted = "" if fault is None else "the engine core failed: dead"
    assert await asyncio.gather(*(watch.find_fault() for _ in range(3))) == [wanted] * 3
    assert core.calls == 1
