"""A server in this process, with a model that answers with a script of the test."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx
from fastapi import FastAPI

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import StartPart
from paternoster_engine.core.batch import Batch, ScheduledRequest, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request, TokenLogprobs
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.collect_logprobs import prompt_rows
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.metrics.metrics import EngineCollector
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_engine.server.state import ServedModel, ServerState
from paternoster_engine.server.text_chains.feed import TextChainFeed

CONFIG = SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, max_model_len=128, block_size=8, num_blocks=64)
WAIT = 30
"""Seconds after which a test that waits for a thread gives up."""


class ScriptedRunner(SynchronousRunner):
    """Every request gets the same tokens, over and over; a step waits while ``gate`` is closed.

    With ``reader``, the asyncio loop of a client, a step also waits until that loop has passed on the step before.
    """

    def __init__(
        self, tokens: Sequence[int], broken_steps: Sequence[int], reader: asyncio.AbstractEventLoop | None
    ) -> None:
        self.tokens = tokens
        self.broken_steps = broken_steps
        self.reader = reader
        self.poison: int | None = None
        """Requests with this token in prompt or answer are corrupted."""
        self.prompt: Sequence[int] = ()
        """Prompt of the request that was computed last."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def execute(self, batch: Batch) -> StepResult:
        self.entered.set()
        assert self.gate.wait(WAIT)
        self.prompt = batch.scheduled[-1].request.prompt
        if self.reader is not None:
            asyncio.run_coroutine_threadsafe(_rounds(50), self.reader).result(WAIT)
        if batch.step in self.broken_steps:
            raise RuntimeError("the device is gone")
        corrupted = [item.request for item in batch.scheduled if self.poison in item.tokens]
        result = StepResult([self._sample(item) for item in batch.scheduled], {}, {}, {}, corrupted=corrupted)
        for item, token in zip(batch.scheduled, result.tokens, strict=True):
            self._collect(item, token, result)
        return result

    def _sample(self, item: ScheduledRequest) -> int | None:
        return self.tokens[len(item.request.output) % len(self.tokens)] if item.samples else None

    def _collect(self, item: ScheduledRequest, token: int | None, result: StepResult) -> None:
        request = item.request
        result.prompt_logprobs[request] = [
            _token_logprobs(request, request.prompt[row + 1], request.params.prompt_logprobs)
            for row in prompt_rows(item)
        ]
        if token is None:
            return
        if request.branch_selector is not None:
            # The token itself, and less likely ones with the numbers after it.
            result.continuations[request] = [
                (token + i, -0.5 - i) for i in range(request.branch_selector.num_continuations)
            ]
        elif request.params.logprobs is not None:
            result.logprobs[request] = [_token_logprobs(request, token, request.params.logprobs)]


def _token_logprobs(request: Request, token: int, num_top: int | None) -> TokenLogprobs:
    """The token is the second best, after the one with the next number. The lower the seed, the likelier they are."""
    best = -0.5 * (1 + request.seed % 8)
    top = [(token + 1, best), (token, best - 1), *((token + i, best - i) for i in range(2, 20))]
    return TokenLogprobs(token, best - 1, 2, tuple(top[: num_top or 0]))


async def _rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@dataclass
class Server:
    """All parts of a server under test, and a client of each of its ports."""

    state: ServerState
    loop: EngineLoop
    runner: ScriptedRunner
    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    app: FastAPI
    """Application of the API, for a port of a test's own."""

    async def submitted_at_once(self, *calls: Coroutine[Any, Any, httpx.Response]) -> list[httpx.Response]:
        """Answers to calls after the first, all of which come while the first one's step is under way."""
        self.runner.gate.clear()
        self.runner.entered.clear()
        first = asyncio.create_task(calls[0])
        await asyncio.to_thread(self.runner.entered.wait, WAIT)
        later = [asyncio.create_task(call) for call in calls[1:]]
        while self.loop._inbox.qsize() < len(later):
            await asyncio.sleep(0.001)
        self.runner.gate.set()
        assert (await first).status_code == 200
        return [await each for each in later]


Serve = Callable[..., AbstractAsyncContextManager[Server]]


def scripted_server(tokenizer: Tokenizer) -> Serve:
    """``async with serve("what the model says") as server``; keyword arguments are fields of the scheduler's config.

    ``args``: settings of the engine. ``served``: fields of the :class:`ServedModel`.
    """

    @asynccontextmanager
    async def serving(
        text: str = "one two three four",
        *,
        broken_steps: Sequence[int] = (),
        vllm_aliases: bool = True,
        loaded: bool = True,
        paced: bool = False,
        parse_special_tokens: bool = False,
        clock: Callable[[], float] = time.monotonic,
        tenants: TenantRules | None = None,
        keys: KeyFiles | None = None,
        name: str = "scripted",
        publishes_texts: bool = False,
        args: Mapping[str, Any] = MappingProxyType({}),
        served: Mapping[str, Any] = MappingProxyType({}),
        **config: int | float | str,
    ) -> AsyncIterator[Server]:
        script = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]
        runner = ScriptedRunner(script, broken_steps, asyncio.get_running_loop() if paced else None)
        engine = Engine(Scheduler(CONFIG.replace(**config)), runner, clock)
        histograms = Histograms("scripted")
        state = ServerState()
        chains = TextChainFeed(state.instance, name, isolates_tenants=False, block_size=engine.scheduler.kv.block_size)
        loop = EngineLoop(engine, histograms, clock, publish_texts=chains.publish if publishes_texts else None)
        chains.on_read = loop.record_texts
        registry = process_registry()
        registry.register(
            EngineCollector(loop, histograms, "scripted", dict.fromkeys(StartPart, 1.0), vllm_aliases=vllm_aliases)
        )
        loop.start()
        settings = EngineArgs(model="scripted", parse_special_tokens=parse_special_tokens, **args)
        prompts = PromptEncoder(tokenizer, engine.scheduler, settings)
        model = ServedModel(
            name,
            tokenizer.vocab_size,
            loop,
            prompts,
            AnswerDecoder(loop, prompts, histograms, settings),
            histograms,
            registry,
            fingerprint="fp_scripted",
            text_chains=chains if publishes_texts else None,
            **served,
        )
        if loaded:
            state.serve(model)
        app = create_app(state, keys, tenants)
        async with _client(app) as client, _client(create_admin_app(state)) as admin:
            try:
                yield Server(state, loop, runner, client, admin, app)
            finally:
                runner.gate.set()
                await loop.stop()
                model.close()

    return serving


def _client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://engine")
