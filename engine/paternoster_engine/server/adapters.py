"""Adapters by the names that clients ask for: loaded on a thread of their own, and kept within bounds of memory.

A request holds the adapter that it was admitted with. So what a name stands for may change, and an adapter may be
unloaded or evicted, while requests run: none of them sees another one, and its memory is freed when the last has ended.
"""

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from paternoster_contract.limits import LONGEST_FAULT, LONGEST_NAME, MAX_ADAPTERS
from paternoster_contract.stats import LoraAdapterStats
from paternoster_engine.model.adapters.adapter_source import AdapterFiles, resolve_adapter
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.server.errors import AdapterUnavailable, InvalidAdapter, UnknownModel

if TYPE_CHECKING:  # torch is loaded with the model
    from paternoster_engine.model.adapters.lora_adapter import LoraAdapter, OpenAdapter

log = logging.getLogger(__name__)

T = TypeVar("T")
Open = Callable[[Path, int], "OpenAdapter"]
"""Opens a path, for a number of bytes that its matrices may take."""

MOST_ADAPTERS = 10_000
"""Most adapters that have a name."""
LONGEST_PATH = 4096
FULL_SECONDS = 1.0
"""Time after which memory that is full is looked at again, though none was freed."""
ROOM_SECONDS = 30.0
"""Time after which a request or a load gives up that waits for room."""
COLLECT_SECONDS = 5.0
"""Time between two collections, however many wait: each holds up all calls."""


@dataclass(frozen=True, slots=True)
class NamedAdapter:
    """Adapter under the name that clients ask for."""

    name: str
    path: str
    """Folder or file that it is read from."""
    digest: bytes
    created: int
    """Time of its load, in seconds since 1970."""
    found: "LoraAdapter | None" = field(default=None, compare=False, repr=False)
    """Adapter that a request on its way holds, should the name get another one meanwhile."""
    source: str = ""
    """Path or address that it was loaded from."""
    files: AdapterFiles | None = field(default=None, compare=False, repr=False)
    """Keeps what was fetched in the cache while the name stands for it."""

    def mark_fingerprint(self, fingerprint: str) -> str:
        """``fingerprint`` of the model, with this adapter."""
        return f"fp_{blake2b(fingerprint.encode() + self.digest, digest_size=6).hexdigest()}"


class AdapterStore:
    """All methods are for the asyncio side."""

    def __init__(self, open_adapter: Open | None, max_bytes: int, model_names: Iterable[str]) -> None:
        """``open_adapter``: None where the engine was started without adapters. ``model_names``: those of the model."""
        self._open = open_adapter
        self.max_bytes = max_bytes
        self._model_names = frozenset(model_names)
        self._named: dict[str, NamedAdapter] = {}
        self._recent: dict[bytes, LoraAdapter] = {}
        """Adapters by digest, the one that was asked for longest ago first."""
        self._alive: weakref.WeakValueDictionary[bytes, LoraAdapter] = weakref.WeakValueDictionary()
        """Adapters in memory, with those that only requests hold."""
        self._promised = 0
        """Bytes of adapters that are being read."""
        self._loading: dict[tuple[bytes, str], asyncio.Task[LoraAdapter]] = {}
        """Reads under way, by digest and path."""
        self._collected = time.monotonic()
        """Time of the last collection."""
        self._freed = asyncio.Event()
        self.counts: Counter[str] = Counter()
        """Numbers of ``loads``, ``evictions``, and ``waits`` of requests for an adapter that was not in memory."""
        self.background = BackgroundLoads(self)

    @property
    def named(self) -> list[NamedAdapter]:
        return list(self._named.values())

    @property
    def resident_bytes(self) -> int:
        """Bytes of adapters in memory."""
        return sum(adapter.nbytes for adapter in list(self._alive.values()))

    @property
    def most_resident(self) -> int:
        """Number of adapters of the largest one's size that fit; 0 before there is one."""
        largest = max((adapter.nbytes for adapter in list(self._alive.values())), default=0)
        return self.max_bytes // largest if largest else 0

    @property
    def awaited(self) -> list[bytes]:
        """Digests of adapters that requests wait for."""
        return [digest for digest, _ in self._loading]

    def find_names(self, digests: Iterable[bytes]) -> list[str]:
        """Names that stand for one of ``digests`` now."""
        wanted = set(digests)
        return sorted(named.name for named in self.named if named.digest in wanted)

    def find_adapter(self, name: str) -> NamedAdapter:
        """Find the adapter of ``name``, held in memory if it is there; raises :class:`UnknownModel`."""
        if name not in self._named:
            raise UnknownModel(name)
        named = self._named[name]
        return replace(named, found=self._alive.get(named.digest))

    async def load(self, name: str, source: str, *, digest: str | None = None, in_place: bool = False) -> None:
        """Make ``name`` stand for the adapter at ``source``, a path or an address to fetch it from.

        ``digest``: what its weights must hash to. ``in_place``: where ``name`` stands for one already; requests that
        run go on with that. Raises :class:`InvalidAdapter`, with nothing changed.
        """
        open_adapter = self.check_load(name, source)
        self._check_name(name, in_place=in_place)
        try:
            files = await _read_in_thread(partial(resolve_adapter, source, digest, self.max_bytes), source)
            path = str(files.path)
            adapter = await self._read(open_adapter, path)
        except ModelError as error:
            raise InvalidAdapter("lora_path", f"lora_path: {error}") from error
        # Another load may have ended meanwhile.
        self._check_name(name, in_place=in_place)
        self._named[name] = NamedAdapter(name, path, adapter.digest, int(time.time()), source=source, files=files)
        self._mark_used(adapter)
        self._forget_nameless()
        log.info("adapter %s loaded from %s: %d bytes, digest %s", name, source, adapter.nbytes, adapter.digest.hex())

    def _check_name(self, name: str, *, in_place: bool) -> None:
        if name in self._named and not in_place:
            raise InvalidAdapter(
                "lora_name",
                f"lora_name: the LoRA adapter '{name}' has already been loaded: set load_inplace to true to "
                "replace it, or unload it first",
            )
        if name not in self._named and len(self._named) >= MOST_ADAPTERS:
            raise InvalidAdapter("lora_name", f"lora_name: {MOST_ADAPTERS} adapters are loaded: unload one first")

    def unload(self, name: str) -> None:
        """Take ``name`` away at once; memory is freed when no request has it. Raises :class:`UnknownModel`."""
        if not self.background.forget(name):
            self.find_adapter(name)
        self._named.pop(name, None)
        self._forget_nameless()
        log.info("adapter %s unloaded", name)

    async def acquire(self, named: NamedAdapter) -> "LoraAdapter":
        """The adapter itself, read again if it was evicted; who holds it keeps it in memory.

        Raises :class:`AdapterUnavailable`.
        """
        adapter = named.found or self._alive.get(named.digest)
        if adapter is None:
            self.counts["waits"] += 1
            key = named.digest, named.path
            task = self._loading.get(key)
            if task is None:
                task = asyncio.create_task(self._read_again(*key))
                self._loading[key] = task
                task.add_done_callback(partial(self._end_loading, key))
            try:
                adapter = await asyncio.shield(task)
            except ModelError as error:
                raise AdapterUnavailable(named.name, str(error)) from error
        if self._named.get(named.name) == named:
            self._mark_used(adapter)
        return adapter

    def check_load(self, name: str, source: str) -> Open:
        """Raises :class:`InvalidAdapter` for what cannot be loaded whatever its files are."""
        if self._open is None:
            raise InvalidAdapter(
                "lora_path",
                "lora_path: this engine was started without adapters: max_adapter_memory is 0, must be the bytes that "
                "they may take",
            )
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidAdapter("lora_name", f"lora_name: must be 1 to {LONGEST_NAME} printable characters")
        if name in self._model_names:
            raise InvalidAdapter("lora_name", f"lora_name: '{name}' is the model's own name: choose another")
        if not source or len(source) > LONGEST_PATH or not source.isprintable():
            raise InvalidAdapter("lora_path", f"lora_path: must be 1 to {LONGEST_PATH} printable characters")
        return self._open

    def _end_loading(self, key: tuple[bytes, str], task: "asyncio.Task[LoraAdapter]") -> None:
        del self._loading[key]
        if not task.cancelled():
            # All who waited for it may be gone.
            task.exception()

    async def _read_again(self, digest: bytes, path: str) -> "LoraAdapter":
        assert self._open is not None
        adapter = await self._read(self._open, path)
        if adapter.digest != digest:
            raise ModelError("its files have changed since it was loaded: load it again")
        return adapter

    async def _read(self, open_adapter: Open, path: str) -> "LoraAdapter":
        """Read an adapter from its files, once there is room; raises :class:`ModelError`."""
        opened = await _read_in_thread(partial(open_adapter, Path(path), self.max_bytes), path)
        await self._make_room(opened.nbytes)
        self._promised += opened.nbytes
        try:
            adapter = await _read_in_thread(opened.read, path)
        finally:
            self._promised -= opened.nbytes
        self.counts["loads"] += 1
        same = self._alive.get(adapter.digest)
        if same is not None:
            return same
        self._alive[adapter.digest] = adapter
        weakref.finalize(adapter, _wake, asyncio.get_running_loop(), self._freed).atexit = False
        return adapter

    async def _make_room(self, nbytes: int) -> None:
        """Evict what was asked for longest ago and no request holds, and wait for requests to end where they must.

        Raises :class:`ModelError` after :data:`ROOM_SECONDS`.
        """
        begun = time.monotonic()
        while True:
            self._freed.clear()
            for digest in list(self._recent):
                if self._fits(nbytes):
                    break
                adapter = self._recent.pop(digest)
                held = weakref.ref(adapter)
                del adapter
                if (still := held()) is None:
                    self.counts["evictions"] += 1
                else:
                    # A request has it, so that nothing would be won.
                    self._recent[digest] = still
                    del still
            if self._fits(nbytes):
                return
            now = time.monotonic()
            if now - begun >= ROOM_SECONDS:
                raise ModelError(f"requests with other adapters took all of max_adapter_memory for {ROOM_SECONDS:g} s")
            try:
                await asyncio.wait_for(self._freed.wait(), FULL_SECONDS)
            except TimeoutError:
                # Requests that ended may be held by circles of objects alone.
                if now - self._collected >= COLLECT_SECONDS:
                    self._collected = now
                    gc.collect()

    def _fits(self, nbytes: int) -> bool:
        return self.resident_bytes + self._promised + nbytes <= self.max_bytes

    def _mark_used(self, adapter: "LoraAdapter") -> None:
        """Mark the adapter that was asked for last."""
        self._recent.pop(adapter.digest, None)
        self._recent[adapter.digest] = adapter

    def _forget_nameless(self) -> None:
        """Let go of adapters that no name stands for any more; requests hold theirs."""
        digests = {named.digest for named in self._named.values()}
        self._recent = {digest: adapter for digest, adapter in self._recent.items() if digest in digests}


@dataclass(slots=True)
class _Load:
    """One load that was begun and not waited for."""

    name: str
    source: str
    digest: str | None
    version: str
    ended: bool = False
    fault: str = ""
    failed_at: float | None = None


class BackgroundLoads:
    """Loads that the operator began and does not wait for, one after another; of a name the last one counts."""

    def __init__(self, store: AdapterStore) -> None:
        self._store = store
        self._loads: dict[str, _Load] = {}
        """The last load of each name."""
        self._running: asyncio.Task[None] | None = None

    def begin(self, name: str, source: str, *, digest: str | None, version: str) -> None:
        """Load the adapter at ``source`` in place of the one that ``name`` stands for, once it can be.

        Raises :class:`InvalidAdapter` for what cannot be loaded whatever its files are.
        """
        self._store.check_load(name, source)
        if name not in self._loads and len(self._loads) >= MAX_ADAPTERS:
            raise InvalidAdapter("lora_name", f"lora_name: {MAX_ADAPTERS} adapters are loaded: unload one first")
        before = self._loads.pop(name, None)
        load = self._loads[name] = _Load(name, source, digest, version)
        if before is not None and before.version == version:
            # Reported until this try has ended.
            load.fault, load.failed_at = before.fault, before.failed_at
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    def forget(self, name: str) -> bool:
        """The name is to stand for nothing; returns whether it was to stand for an adapter."""
        return self._loads.pop(name, None) is not None

    def list_reports(self) -> tuple[LoraAdapterStats, ...]:
        """The adapters that were loaded here, then others, :data:`MAX_ADAPTERS` at most."""
        ready = {named.name for named in self._store.named}
        reports = [
            LoraAdapterStats(
                name=load.name,
                version=load.version,
                ready=load.name in ready,
                loading=not load.ended,
                fault=load.fault,
                failed_at=load.failed_at,
            )
            for load in self._loads.values()
        ]
        reports += [LoraAdapterStats(name=name, ready=True) for name in ready if name not in self._loads]
        return tuple(reports[:MAX_ADAPTERS])

    async def _run(self) -> None:
        while (load := next((each for each in self._loads.values() if not each.ended), None)) is not None:
            try:
                await self._store.load(load.name, load.source, digest=load.digest, in_place=True)
                load.fault, load.failed_at = "", None
            except InvalidAdapter as error:
                load.fault, load.failed_at = str(error).removeprefix("lora_path: ")[:LONGEST_FAULT], time.time()
                log.warning("adapter %s cannot be loaded from %s: %s", load.name, load.source, error)
            except Exception as error:
                load.fault, load.failed_at = f"{type(error).__name__} while it was loaded"[:LONGEST_FAULT], time.time()
                log.exception("adapter %s cannot be loaded from %s", load.name, load.source)
            load.ended = True
            if load.name not in self._loads and not load.fault:
                # It was unloaded meanwhile.
                self._store.unload(load.name)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Wake who waits for room, from whatever thread let go of an adapter last."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)


async def _read_in_thread(function: Callable[[], T], path: str) -> T:
    """Run ``function`` in a thread that ends, and torch's compute threads with it: they would slow the engine's.

    The process does not wait for it when it ends. Raises :class:`ModelError`, for what the system and torch raise as
    well.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="adapter", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    except (OSError, MemoryError, RuntimeError) as error:
        # RuntimeError: torch's lack of memory, and recursion.
        why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        log.warning("adapter at %s cannot be read", path, exc_info=error)
        raise ModelError(f"{shorten_value(path)} cannot be read: {why}") from error
