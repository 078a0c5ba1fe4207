"""Where grammars are compiled: outside of the event loop and of the engine's thread, each once."""

import asyncio
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.compiler import GrammarCache, GrammarCompiler
from paternoster_engine.sampling.grammars.errors import GrammarError, GrammarProcessLost, GrammarQueueFull
from paternoster_engine.sampling.grammars.grammar import TOO_SLOW, Grammar
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.server.generation.round_robin import TenantQueues
from paternoster_engine.server.metrics.histograms import Histograms

CACHE = 64 * 2**20
"""Bytes of compiled grammars in the cache: about 60 schemas."""
MAX_WAITING = 64
"""Grammars that may wait to be compiled, the one under way included."""
MAX_OF_TENANT = MAX_WAITING // 2
"""Part of these that one tenant may have waiting."""
NICE = 10
"""Niceness of the thread and the process for grammars: the steps of the model have the same CPUs."""

Made = Grammar | GrammarError


@dataclass(slots=True)
class _Compilation:
    """A grammar that requests wait for."""

    made: asyncio.Future[Made]
    waiters: Counter[str] = field(default_factory=Counter)
    """Requests by tenant."""
    begun: bool = False


class GrammarWork:
    """One thread with its process that compiles grammars, for one tenant after the other.

    Requests for the same grammar share one compilation; one that no request waits for any more is dropped.
    """

    def __init__(self, tokenizer: Tokenizer, histograms: Histograms, *, compact: bool = False) -> None:
        """``compact``: JSON has no white space between its tokens, also where a source does not demand it."""
        self._ends = bool(tokenizer.eos_token_ids)
        self._compiler = GrammarCompiler(lambda: Vocabulary.from_tokenizer(tokenizer), tokenizer.encode)
        self._compact = compact
        self._cache = GrammarCache(CACHE)
        self._histograms = histograms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars", initializer=_be_nice)
        self._turns: TenantQueues[GrammarSource] = TenantQueues()
        self._compilations: dict[GrammarSource, _Compilation] = {}
        self._working: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Grammars that wait to be compiled, the one under way included."""
        return len(self._compilations)

    async def compile(self, source: GrammarSource, tenant: str = "") -> Grammar:
        """Raises :class:`GrammarError`, :class:`GrammarQueueFull` and :class:`GrammarProcessLost`."""
        if not self._ends:
            raise GrammarError("this model has no token that ends an answer")
        if self._compact:
            source = source._replace(compact=True)
        made = self._cache.get(source)
        if made is not None:
            self._histograms.grammars["cached"] += 1
        else:
            made = await self._wait(source, tenant)
        if isinstance(made, GrammarError) or made.too_slow:
            self._histograms.grammars["refused"] += 1
            raise GrammarError(str(made) if isinstance(made, GrammarError) else TOO_SLOW)
        return made

    def warm_up(self) -> None:
        """Have the process and the vocabulary ready for the first grammar; waits, and raises nothing."""
        if self._ends:
            with suppress(GrammarProcessLost):
                self._thread.submit(self._compiler.start).result()

    def close(self) -> None:
        """Take no more, and end the process."""
        if self._working is not None:
            self._working.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._compiler.close()

    async def _wait(self, source: GrammarSource, tenant: str) -> Made:
        compilation = self._compilations.get(source)
        if compilation is None and len(self._compilations) >= MAX_WAITING:
            raise GrammarQueueFull(len(self._compilations))
        if not self._turns.has_work(tenant, source):
            if self._turns.count_waiting(tenant) >= MAX_OF_TENANT:
                raise GrammarQueueFull(self._turns.count_waiting(tenant))
            # Also where it waits for another tenant, whose turn may come later.
            self._turns.add(tenant, source)
        if compilation is None:
            compilation = self._compilations[source] = _Compilation(asyncio.get_running_loop().create_future())
        if self._working is None:
            self._working = asyncio.create_task(self._compile_waiting())
        compilation.waiters[tenant] += 1
        try:
            # A client that goes away takes nothing from the others.
            return await asyncio.shield(compilation.made)
        finally:
            compilation.waiters[tenant] -= 1
            if not compilation.made.done():
                self._release_unused(source, compilation, tenant)

    def _release_unused(self, source: GrammarSource, compilation: _Compilation, tenant: str) -> None:
        """Free the places of a grammar that no request waits for: others may have them while the thread is busy."""
        if not compilation.waiters[tenant]:
            self._turns.remove(tenant, source)
        if not compilation.waiters.total() and not compilation.begun:
            del self._compilations[source]

    async def _compile_waiting(self) -> None:
        """Compile until no grammar waits."""
        try:
            while (source := self._turns.pop_next()) is not None:
                compilation = self._compilations.get(source)
                if compilation is None:
                    # It was made at another tenant's turn.
                    continue
                compilation.begun = True
                await self._compile_source(source, compilation.made)
                del self._compilations[source]
        finally:
            self._working = None
            # None is left but at the end of the engine.
            for compilation in self._compilations.values():
                compilation.made.cancel()

    async def _compile_source(self, source: GrammarSource, result: asyncio.Future[Made]) -> None:
        try:
            made, seconds = await asyncio.get_running_loop().run_in_executor(self._thread, self._compile, source)
        except Exception as error:
            result.set_exception(error)
            # Every waiting request gets the error; without one, asyncio would log it.
            result.exception()
            return
        self._cache.put(source, made)
        self._histograms.grammars["compiled"] += isinstance(made, Grammar)
        self._histograms.observe_compile(seconds)
        result.set_result(made)

    def _compile(self, source: GrammarSource) -> tuple[Grammar | GrammarError, float]:
        started = time.perf_counter()
        made: Grammar | GrammarError
        try:
            made = self._compiler.compile(source)
        except GrammarError as error:
            # Without its cause, which the cache would hold as well.
            made = GrammarError(str(error))
        return made, time.perf_counter() - started


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
