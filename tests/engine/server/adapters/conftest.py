"""A server of the first layers of the default model, with adapters of random numbers beside it."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.engine.adapters import random_adapters

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.adapters.lora_adapter import OpenAdapter, open_adapter
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler
from paternoster_engine.server.adapters import AdapterStore
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.metrics.metrics import EngineCollector
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_engine.server.state import ServedModel, ServerState

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS, MAX_TOKENS = 8, 128, 8
TARGETS = ("q_proj", "v_proj")
PROMPTS = ("The lift never stops: riders step on and off at", "Seven cars go round and round, and each of them")
"""Longer than a block, so that prefixes are found."""


class AdapterFiles:
    """Writes adapters, and computes the model's answers with them without any server."""

    def __init__(self, model: Decoder, tokenizer: Tokenizer, folder: Path) -> None:
        self._model, self._tokenizer, self._folder = model, tokenizer, folder
        self._answers: dict[tuple[int | None, str], str] = {}

    def write(self, seed: int, place: str | None = None, rank: int = 4) -> Path:
        """The adapter ``seed`` in the folder ``place``, one of its own by default."""
        return random_adapters.save_adapter(
            self._folder / (place or str(seed)), self._model.config, TARGETS, seed=seed, rank=rank
        )

    def open(self, path: Path, most_bytes: int) -> OpenAdapter:
        return open_adapter(path, most_bytes, config=self._model.config, dtype=torch.float32, device=CPU)

    @property
    def nbytes(self) -> int:
        """Bytes of one."""
        return self.open(self.write(0), 2**30).nbytes

    def answer(self, seed: int | None, prompt: str) -> str:
        """Answer of the model with the adapter ``seed``, or without one."""
        if (seed, prompt) not in self._answers:
            adapter = None if seed is None else self.open(self.write(seed), 2**30).read()
            params = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0)
            request = Request(RequestSpec("r", self._tokenizer.encode(prompt), params, adapter=adapter))
            engine = self.engine()
            engine.scheduler.add(request)
            while engine.scheduler.has_work:
                engine.step()
            self._answers[seed, prompt] = self._tokenizer.decode(request.output)
        return self._answers[seed, prompt]

    def engine(self, open_files: Callable[[Path, int], OpenAdapter] | None = None) -> Engine:
        config = SchedulerConfig(
            max_num_seqs=8, max_batched_tokens=64, max_model_len=128, block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS
        )
        cache = allocate_kv_cache(KVPoolShape(NUM_BLOCKS, BLOCK_SIZE, 0), self._model.config, torch.float32, CPU)
        runner = ModelRunner(self._model, cache, Sampler(self._model.config.vocab_size, CPU))
        return Engine(Scheduler(config), runner, open_adapter=open_files)


@dataclass
class AdaptedServer:
    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    store: AdapterStore
    loop: EngineLoop
    opened: threading.Event
    """Set while files of adapters may be opened."""

    async def load(self, name: str, path: Path, *, in_place: bool = False) -> httpx.Response:
        body = {"lora_name": name, "lora_path": str(path), "load_inplace": in_place}
        return await self.admin.post("/v1/load_lora_adapter", json=body)

    async def unload(self, name: str) -> httpx.Response:
        return await self.admin.post("/v1/unload_lora_adapter", json={"lora_name": name})

    async def complete(self, model: str, prompt: str, **fields: Any) -> httpx.Response:
        body = {"model": model, "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
        return await self.client.post("/v1/completions", json={**body, **fields})

    async def text(self, model: str, prompt: str) -> str:
        response = await self.complete(model, prompt)
        assert response.status_code == 200, response.text
        assert response.json()["model"] == model
        text: str = response.json()["choices"][0]["text"]
        return text


ServeAdapters = Callable[[int], AbstractAsyncContextManager[AdaptedServer]]


@pytest.fixture(scope="session")
def files(shallow: Decoder, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> AdapterFiles:
    return AdapterFiles(shallow, tokenizer, tmp_path_factory.mktemp("adapters"))


@pytest.fixture
def serve_adapters(files: AdapterFiles, tokenizer: Tokenizer) -> ServeAdapters:
    """``async with serve_adapters(most_bytes) as server``; the model's names are ``base`` and ``alias``."""
    return partial(_serve, files, tokenizer)


@asynccontextmanager
async def _serve(files: AdapterFiles, tokenizer: Tokenizer, most_bytes: int) -> AsyncIterator[AdaptedServer]:
    opened = threading.Event()
    opened.set()

    def open_files(path: Path, most: int) -> OpenAdapter:
        assert opened.wait(60)
        return files.open(path, most)

    engine = files.engine(open_files if most_bytes else None)
    histograms, state, registry = Histograms("base"), ServerState(), process_registry()
    store = AdapterStore(engine.open_adapter, most_bytes, ["base", "alias"])
    loop = EngineLoop(engine, histograms)
    registry.register(EngineCollector(loop, histograms, "base", {}, vllm_aliases=True, adapters=store))
    loop.start()
    settings = EngineArgs(model="base")
    prompts = PromptEncoder(tokenizer, engine.scheduler, settings)
    served = ServedModel(
        "base", tokenizer.vocab_size, loop, prompts, AnswerDecoder(loop, prompts, histograms, settings), histograms,
        registry, aliases=("alias",), adapters=store, fingerprint="fp_base",
    )  # fmt: skip
    state.serve(served)
    apps: Sequence[Any] = (create_app(state), create_admin_app(state))
    transports = [httpx.ASGITransport(app, raise_app_exceptions=False) for app in apps]
    async with (
        httpx.AsyncClient(transport=transports[0], base_url="http://engine", timeout=120) as client,
        httpx.AsyncClient(transport=transports[1], base_url="http://engine", timeout=120) as admin,
    ):
        try:
            yield AdaptedServer(client, admin, store, loop, opened)
        finally:
            opened.set()
            await loop.stop()
            served.close()
