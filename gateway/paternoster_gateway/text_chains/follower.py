"""Follows the text chains of every replica in the routing table: one stream, and one task, for each."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_contract.routing import RoutingTable
from paternoster_contract.supervise import supervise_task
from paternoster_contract.text_chains.stream import HEARTBEAT_SECONDS, MEDIA_TYPE, FrameReader, InvalidStream
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.routing.prefix_routing import PrefixRouting
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.text_chains.loop_share import LoopShare
from paternoster_gateway.text_chains.reader import ChainReader, StreamFault
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_http.shares import Shares

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds until a stream that ended is requested again, doubled each time, and shortened by up to a half at random."""
UNPUBLISHED_SECONDS = 60.0
"""Between requests to a replica that publishes nothing, or of another version or model: it stays so until it ends."""
LASTING_FAULTS = frozenset({"version", "model"})
"""Reasons for which a stream is no other a moment later."""
STALE_SECONDS = 30.0
"""Without a stream, after which what a replica holds is not believed any more."""
MAX_KEPT_BYTES = 16 * 2**20
"""Limit for all replicas together, read and not applied: shared out by fleet. A stream beyond it is read anew later."""
FIRST_BYTES = 4 * 2**20
"""Bytes of a replica that are read in all time the event loop has to spare: the largest indexed snapshot has 3 MiB."""
CONNECTION_SECONDS = 600.0
"""After which a stream is requested anew, with the key that opens the engine then."""


class _Unpublished(Exception):
    """The replica publishes no text chains."""


class TextChainFollower:
    """Reads streams into ``prefixes``. Whatever replicas send, all together get a third of a busy event loop.

    Each replica's first bytes, a snapshot, are read as soon as nothing else is to be done; later ones get no more than
    the third of an idle loop either.
    """

    def __init__(self, prefixes: PrefixRouting, keys: SentKeys, metrics: GatewayMetrics) -> None:
        self._prefixes = prefixes
        self._keys = keys
        self._metrics = metrics
        self._share = LoopShare()
        self._unapplied = Shares(MAX_KEPT_BYTES)
        """Bytes that were read and not applied, by fleet and replica."""
        self._session: aiohttp.ClientSession | None = None
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        """Tasks by URL, model and fleet."""
        self._readers: dict[str, ChainReader] = {}
        metrics.whole_indexes.set_function(lambda: sum(reader.is_whole for reader in self._readers.values()))
        metrics.indexed_pieces.set_function(lambda: sum(map(prefixes.reported.count, prefixes.reported.replicas)))
        metrics.refused_pieces.set_function(lambda: prefixes.reported.refused)

    async def open_session(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=bounded_connector(limit=0),
            read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, connect=5, sock_read=3 * HEARTBEAT_SECONDS),
            auto_decompress=False,
        )

    def follow_table(self, table: RoutingTable) -> None:
        """Follow the replicas of ``table``, and no others."""
        listed = {(replica.url, model, row.fleet) for model, row in table.models.items() for replica in row.replicas}
        for gone in self._tasks.keys() - listed:
            self._tasks.pop(gone).cancel()
        for each in listed - self._tasks.keys():
            self._tasks[each] = supervise_task(partial(self._follow_replica, *each), "follow-text-chains")

    async def close(self) -> None:
        """End all streams."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _follow_replica(self, url: str, model: str, fleet: str) -> None:
        reader = self._readers[url] = ChainReader(url, model, self._prefixes)
        last_read, failures = time.monotonic(), 0
        try:
            while True:
                wait = 0.0
                try:
                    await self._read(reader, url, fleet)
                except _Unpublished:
                    reader.drop_replica()
                    wait = UNPUBLISHED_SECONDS
                except (StreamFault, InvalidStream) as fault:
                    reason = getattr(fault, "reason", "garbage")
                    self._record_fault(url, reason, fault)
                    reader.drop_replica()
                    if reason in LASTING_FAULTS:
                        wait = UNPUBLISHED_SECONDS
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    log.debug("text chains of %s: %s", url, error_text(error))
                if reader.has_read:
                    last_read, failures = time.monotonic(), 0
                elif reader.is_whole and time.monotonic() - last_read > STALE_SECONDS:
                    self._record_fault(url, "away", TimeoutError(f"no stream for {STALE_SECONDS:g} s"))
                    reader.drop_replica()
                wait = wait or min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE)
                failures += 1
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        finally:
            if self._readers.get(url) is reader:
                del self._readers[url]
                reader.drop_replica()

    async def _read(self, reader: ChainReader, url: str, fleet: str) -> None:
        """Read one connection until it ends. Raises what :meth:`_follow_replica` expects."""
        assert self._session is not None
        get = partial(
            self._session.get, url + paths.TEXT_CHAINS, params=reader.start_connection(), allow_redirects=False
        )
        frames = FrameReader()
        async with asyncio.timeout(STALE_SECONDS):
            await self._share.wait_start()
        async with await self._keys.send(lambda key: get(headers=key), url, fleet) as response:
            if response.status == 503 or response.status == 401:
                return
            if response.status != 200 or response.content_type != MEDIA_TYPE:
                raise _Unpublished
            ends = time.monotonic() + CONNECTION_SECONDS * random.uniform(0.5, 1.0)
            with self._count_bytes(fleet, url) as hold:
                while time.monotonic() < ends and (data := await response.content.readany()):
                    hold(frames.num_bytes + len(data))
                    reader.bytes_read += len(data)
                    run = partial(self._share.run, ends_when_idle=reader.bytes_read <= FIRST_BYTES)
                    read = frames.feed(data)
                    while (frame := await run(partial(next, read, None))) is not None:
                        for step in reader.apply(frame):
                            await run(step)
                    hold(frames.num_bytes)

    @contextmanager
    def _count_bytes(self, fleet: str, url: str) -> Iterator[Callable[[int], None]]:
        """Yields what states how many bytes are kept of a connection; it raises :class:`StreamFault` for too many."""
        party, held = (fleet, url), 0

        def hold_bytes(count: int) -> None:
            nonlocal held
            if count > held and not self._unapplied.has_room(party, count - held):
                raise StreamFault("memory", f"{count} bytes are read of it, and its fleet has too many")
            self._unapplied.add(party, count - held)
            held = count

        try:
            yield hold_bytes
        finally:
            self._unapplied.remove(party, held)

    def _record_fault(self, url: str, reason: str, fault: Exception) -> None:
        self._metrics.chain_faults.labels(reason).inc()
        log.warning("text chains of %s are not believed: %s", url, error_text(fault))
