"""One engine process: it listens, loads, serves, drains and ends."""

import asyncio
import gc
import hashlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from paternoster_contract import __version__
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.cli.terminal import print_lines
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.http.origins import parse_origins
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import StartPart
from paternoster_engine.core.kv.cache_events import CacheEvents
from paternoster_engine.engine import Engine
from paternoster_engine.model.config import ModelDescription
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.adapters import AdapterStore
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop, PublishEvents
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.metrics.metrics import EngineCollector
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_engine.server.state import ServedModel, ServerState
from paternoster_engine.server.text_chains.feed import TextChainFeed
from paternoster_engine.start_timer import StartTimer, process_age
from paternoster_http.server import BackgroundServer

if TYPE_CHECKING:
    from paternoster_engine.kv_events.publisher import KVEventPublisher

log = logging.getLogger(__name__)

T = TypeVar("T")
Build = Callable[[EngineArgs, StartTimer], tuple[Engine, Tokenizer, ModelDescription]]

SIGNALS = (signal.SIGTERM, signal.SIGINT)


FINGERPRINT_DIGITS = 12


def compute_fingerprint(args: EngineArgs, model: ModelDescription) -> str:
    """``fp_`` and a digest of what decides which numbers are computed: programs, model, formats, devices.

    Another ``system_fingerprint`` of an answer means that a seed may give other tokens than before.
    """
    import torch  # which is there once a model is; a server says before that it loads

    cuda = torch.cuda.is_available() and args.device != "cpu"
    device = torch.cuda.get_device_name() if cuda else torch.backends.cpu.get_cpu_capability()
    parts = (
        __version__, torch.__version__, args.model, repr(model), device,
        args.dtype, args.quantization, args.kv_cache_dtype, args.tensor_parallel_size, args.batch_invariant,
    )  # fmt: skip
    return "fp_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:FINGERPRINT_DIGITS]


class EngineLost(RuntimeError):
    """The engine cannot compute any more, though the process was not asked to end."""


def base_url(listener: socket.socket) -> str:
    return join_base_url(*listener.getsockname()[:2])


def _open_key_files(path: str | None) -> KeyFiles | None:
    return None if path is None else KeyFiles(path)


def _open_kv_events(args: EngineArgs) -> "KVEventPublisher | None":
    if args.kv_events_config is None or not args.kv_events_config.publishes:
        return None
    # ZMQ is loaded only by engines that publish.
    from paternoster_engine.kv_events.publisher import KVEventPublisher

    return KVEventPublisher(args.kv_events_config)


async def in_a_thread_that_ends(function: Callable[[], T]) -> T:
    """What ``function`` gives; afterwards its thread is gone, and with it the compute threads that torch gave to it.

    Were they to stay, libgomp would have more threads than CPUs and send those of the engine's loop to sleep at every
    barrier: a decode step of one sequence then takes 31 ms and not 19.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="load") as alone:
        return await asyncio.get_running_loop().run_in_executor(alone, function)


class EngineProcess:
    """Probes are answered from the first moment on, prompts once the model is loaded."""

    def __init__(
        self,
        args: EngineArgs,
        listener: socket.socket,
        state: ServerState,
        build: Build,
        admin_listener: socket.socket | None = None,
    ) -> None:
        """Without ``admin_listener`` there is no admin API."""
        self._args = args
        self._state = state
        self._build = build
        self._ending = asyncio.Event()
        self._address_lines = [f"listening on {base_url(listener)}"]
        api = create_app(
            state,
            _open_key_files(args.api_keys),
            TenantRules.from_args(args),
            parse_origins(args.allowed_origins or ""),
        )
        self._http = [(listener, BackgroundServer(api, args))]
        if admin_listener is not None:
            self._address_lines.append(f"admin API on {base_url(admin_listener)}")
            admin = create_admin_app(state, _open_key_files(args.admin_keys))
            self._http.append((admin_listener, BackgroundServer(admin, args)))
        self._kv_events = _open_kv_events(args)
        if self._kv_events is not None:
            self._address_lines.append(f"KV events on {self._kv_events.endpoint}")

    async def run(self) -> None:
        """Serve until a signal; raises what the loading of the model raises, and :class:`EngineLost`."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        for listener, http in self._http:
            await http.start(listener)
        try:
            served = await self._load()
            print_lines(self._address_lines)
            fault = await self._until_the_end(served.loop)
            await self._drain()
            await served.loop.stop()
            served.close()
            if fault is not None:
                raise EngineLost(fault)
        finally:
            if self._kv_events is not None:
                self._kv_events.close()
            await asyncio.gather(*(http.close() for _, http in self._http))

    async def _load(self) -> ServedModel:
        timer = StartTimer(process_age())
        engine, tokenizer, model = await in_a_thread_that_ends(partial(self._build, self._args, timer))
        name, *aliases = self._args.names_for_clients
        histograms = Histograms(name)
        chains = self._follow_texts(engine, name, embeds=model.pooling is not None)
        publish_texts = None if chains is None else chains.publish
        loop = EngineLoop(engine, histograms, publish_events=self._start_kv_events(engine), publish_texts=publish_texts)
        if chains is not None:
            chains.on_read = loop.record_texts
        adapters = None
        if model.pooling is None:
            adapters = AdapterStore(engine.open_adapter, self._args.max_adapter_memory, self._args.names_for_clients)
        registry = process_registry()
        collector = EngineCollector(
            loop,
            histograms,
            name,
            timer.seconds,
            vllm_aliases=self._args.vllm_metrics,
            memory=self._args,
            text_chains=chains,
            adapters=adapters,
        )
        registry.register(collector)
        loop.start()
        prompts = PromptEncoder(tokenizer, engine.scheduler, self._args)
        served = ServedModel(
            name,
            model.vocab_size,
            loop,
            prompts,
            AnswerDecoder(loop, prompts, histograms, self._args),
            histograms,
            registry,
            text_chains=chains,
            aliases=tuple(aliases),
            adapters=adapters,
            start_seconds=timer.seconds,
            fingerprint=compute_fingerprint(self._args, model),
            pooling=model.pooling,
            sampling_defaults=model.sampling_defaults,
        )
        await asyncio.to_thread(served.warm_up)
        timer.record_end(StartPart.WARM_UP)
        self._state.serve(served)
        log.info("ready in %s", timer)
        # What was loaded lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.enable()
        return served

    def _start_kv_events(self, engine: Engine) -> PublishEvents | None:
        if self._kv_events is None:
            return None
        cache = engine.scheduler.kv
        cache.pool.events = CacheEvents()
        self._kv_events.start(cache.block_size, cache.groups.count)
        return self._kv_events.publish

    def _follow_texts(self, engine: Engine, name: str, *, embeds: bool) -> TextChainFeed | None:
        """Where clients have keys of their own none may read what others asked, and nothing is recorded."""
        args, kv = self._args, engine.scheduler.kv
        if embeds or not args.prefix_cache or not (args.identity_header or args.api_keys is None):
            return None
        rules = TenantRules.from_args(args)
        return TextChainFeed(
            self._state.instance, name, isolates_tenants=rules.isolates_cache, block_size=kv.block_size
        )

    async def _until_the_end(self, loop: EngineLoop) -> str | None:
        """Wait for a signal, or for the engine to be lost; why it is lost, None for a signal."""
        assert loop.lost is not None
        signalled = asyncio.create_task(self._ending.wait())
        await asyncio.wait((signalled, loop.lost), return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        if not loop.lost.done():
            return None
        # Not ready from now on; clients that got the error still get their last bytes.
        self._state.begin_end()
        return loop.lost.result()

    def _on_signal(self, number: int) -> None:
        """The first drains, the second ends the process at once; while loading there is nothing to wait for."""
        if self._state.loading or self._ending.is_set():
            sys.stdout.flush()
            os._exit(128 + number if self._ending.is_set() else 0)
        self._state.begin_end()
        self._ending.set()

    async def _drain(self) -> None:
        log.info("draining: %d calls in flight", self._state.in_flight)
        try:
            async with asyncio.timeout(self._args.drain_timeout):
                await self._state.wait_idle()
        except TimeoutError:
            log.warning("%d calls are cut off after %g s of draining", self._state.in_flight, self._args.drain_timeout)
