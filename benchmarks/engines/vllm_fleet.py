"""``paternoster up`` with one vLLM, and what its plugin reports."""

import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from harness.local_fleet import FleetError, LocalFleet, Sample, manifest
from paternoster_contract.stats import EngineStats
from paternoster_load.client import COMPLETIONS
from paternoster_operator.engines.vllm import LIMITS_PATH, VllmAdapter
from paternoster_operator.engines.vllm_arguments import ADMIN_KEYS_ENV, API_KEYS_ENV, HEALTH
from paternoster_operator.scrape import Scraper
from peers.systems.vllm_cpu import ENVIRONMENT
from peers.systems.weights import checkpoint

START_WITHIN = 420.0
"""Seconds in which vLLM starts on a busy machine."""
MODEL = "chat"


def vllm_manifest(
    concurrency: dict[str, Any], *, max_num_seqs: int, kv_cache: str, max_model_len: int, slo: dict[str, int]
) -> dict[str, Any]:
    """A fleet of one vLLM in bfloat16 with one thread, bound to no processor, whose token budget stays."""
    env = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    runtime = {
        "type": "VLLM",
        "command": [str(ENVIRONMENT.folder / "bin/vllm"), "serve"],
        "args": ["--enforce-eager"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    # vLLM's own blocks on a CPU have 128 tokens: most answers would be one block.
    engine = {
        "runtime": runtime, "dtype": "bfloat16", "maxNumSeqs": max_num_seqs, "maxModelLen": max_model_len,
        "kvCacheMemory": kv_cache, "prefixCache": False, "blockSize": 64,
    }  # fmt: skip
    concurrency = {"tokenBudget": {"mode": "Fixed"}, **concurrency}
    source = {"source": f"file://{checkpoint()}"}
    return manifest(MODEL, model=source, engine=engine, replicas=1, slo=slo, concurrency=concurrency)


@asynccontextmanager
async def vllm_fleet(document: dict[str, Any]) -> AsyncIterator["VllmFleet"]:
    """A fleet of one vLLM that is ready, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="paternoster-vllm-", ignore_cleanup_errors=True) as folder:
        fleet = VllmFleet(document, Path(folder))
        async with fleet:
            yield fleet


class VllmFleet(LocalFleet):
    """Use as an async context manager: ready inside, drained after."""

    ready_within = START_WITHIN

    def __init__(self, manifest: dict[str, Any], folder: Path) -> None:
        super().__init__(manifest, 1, folder)
        self._server = 0
        self._scraper = Scraper(timeout_seconds=30, gateway_url=None)
        self._keys: list[str] = []
        self._api_key = ""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Inside the block ``paternoster up`` is stopped by a signal: it takes no processor time and moves no limit."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    async def __aexit__(self, *exc_info: object) -> None:
        await self._scraper.close()
        await super().__aexit__(*exc_info)

    async def stats(self) -> EngineStats:
        """What the operator reads of the engine, read once more."""
        (url,) = self._engines
        found, faults, _ = await self._scraper.read_engines({MODEL: url}, {MODEL: VllmAdapter()}, self._keys)
        if MODEL not in found:
            raise FleetError(f"vLLM reports no numbers: {faults.get(MODEL, 'no answer in time')}: {self._log}")
        return found[MODEL]

    async def call_core(self, limits: Mapping[str, int] | None = None) -> dict[str, Any]:
        """One answer of the plugin, for which its API server calls the engine core; sets ``limits`` if any."""
        (url,) = self._engines
        headers = {"Authorization": f"Bearer {self._keys[0]}"}
        method = "PATCH" if limits else "GET"
        async with self._session.request(method, url + LIMITS_PATH, json=limits, headers=headers) as response:
            response.raise_for_status()
            return dict(await response.json())

    async def complete(self, prompt: Sequence[int], max_tokens: int) -> None:
        """Compute one answer, past the gateway and in one piece: streams would take processor time of vLLM's."""
        (url,) = self._engines
        body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {self._api_key}"}
        timeout = aiohttp.ClientTimeout(total=START_WITHIN)
        async with self._session.post(url + COMPLETIONS, json=body, headers=headers, timeout=timeout) as response:
            response.raise_for_status()
            await response.read()

    def server_and_core(self) -> tuple[psutil.Process, psutil.Process]:
        """The processes that a call of the plugin takes time of."""
        return psutil.Process(self._server), self._find_child("EngineCore")

    def worker(self) -> psutil.Process:
        """The process that computes. The engine core looks all the time whether it is done."""
        return self._find_child("Worker")

    def _find_child(self, title: str) -> psutil.Process:
        """Find a child by the title that vLLM gives it."""
        children = psutil.Process(self._server).children(recursive=True)
        return next(each for each in children if title in " ".join([each.name(), *each.cmdline()]))

    async def sample(self) -> None:
        stats = await self.stats()
        self.samples.append(Sample(time.perf_counter(), (stats,)))

    async def _find_engines(self) -> list[str]:
        for process in psutil.Process(self.pid).children():
            folder = process.environ().get(ADMIN_KEYS_ENV)
            words = process.cmdline()
            if folder is not None and "--port" in words:
                url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
                if await self._answers(url + HEALTH):
                    self._server = process.pid
                    self._keys = read_keys(Path(folder))
                    api_keys = process.environ().get(API_KEYS_ENV)
                    self._api_key = read_keys(Path(api_keys))[0] if api_keys else ""
                    return [url]
        return []


def read_keys(folder: Path) -> list[str]:
    return [file.read_text(encoding="utf-8").strip() for file in folder.glob("[!.]*")]
