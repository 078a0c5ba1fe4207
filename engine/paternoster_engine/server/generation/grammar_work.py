"""Where grammars are compiled: outside of the event loop and of the engine's thread, each once."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.compiler import Compiler, GrammarCache
from paternoster_engine.sampling.grammars.errors import GrammarError, GrammarQueueFull
from paternoster_engine.sampling.grammars.grammar import TOO_SLOW, Grammar
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.server.metrics.histograms import Histograms

CACHE = 64 * 2**20
"""Bytes of compiled grammars that are kept: about 480 small schemas."""
MAX_WAITING = 64
"""Grammars that may wait to be compiled, the one under way included."""
NICE = 10
"""What the thread and the process for grammars leave to others; the steps of the model have the same CPUs."""


class GrammarWork:
    """One thread with its process. Those who ask for the same grammar wait for the same work."""

    def __init__(self, tokenizer: Tokenizer, histograms: Histograms) -> None:
        self._ends = bool(tokenizer.eos_token_ids)
        self._compiler = Compiler(lambda: Vocabulary.of(tokenizer), tokenizer.encode)
        self._cache = GrammarCache(CACHE)
        self._histograms = histograms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars", initializer=_be_nice)
        self._under_way: dict[GrammarSource, asyncio.Task[Grammar | GrammarError]] = {}

    async def compile(self, source: GrammarSource) -> Grammar:
        """Raises :class:`GrammarError`, :class:`GrammarQueueFull` and :class:`GrammarProcessLost`."""
        if not self._ends:
            raise GrammarError("this model has no token that ends an answer")
        made = self._cache.get(source)
        if made is not None:
            self._histograms.grammars["cached"] += 1
        else:
            # A client that goes away takes nothing from the others.
            made = await asyncio.shield(self._work(source))
        if isinstance(made, GrammarError) or made.too_slow:
            self._histograms.grammars["refused"] += 1
            raise GrammarError(str(made) if isinstance(made, GrammarError) else TOO_SLOW)
        return made

    def close(self) -> None:
        """Take no more, and end the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._compiler.close()

    def _work(self, source: GrammarSource) -> "asyncio.Task[Grammar | GrammarError]":
        task = self._under_way.get(source)
        if task is None:
            if len(self._under_way) >= MAX_WAITING:
                raise GrammarQueueFull(len(self._under_way))
            task = self._under_way[source] = asyncio.create_task(self._make(source))
            task.add_done_callback(lambda _: self._under_way.pop(source))
        return task

    async def _make(self, source: GrammarSource) -> Grammar | GrammarError:
        made, seconds = await asyncio.get_running_loop().run_in_executor(self._thread, self._compile, source)
        self._cache.put(source, made)
        self._histograms.grammars["compiled"] += isinstance(made, Grammar)
        self._histograms.compiled(seconds)
        return made

    def _compile(self, source: GrammarSource) -> tuple[Grammar | GrammarError, float]:
        started = time.perf_counter()
        made: Grammar | GrammarError
        try:
            made = self._compiler.compile(source)
        except GrammarError as error:
            # Without what it was raised from, which would be kept as well.
            made = GrammarError(str(error))
        return made, time.perf_counter() - started


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
