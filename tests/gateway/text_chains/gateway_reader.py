"""A gateway's side of one replica's stream, without HTTP: the real reader and index before the engine's real feed."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

from paternoster_contract.text_chains.stream import Changes, FrameReader, Heartbeat, encode_frame
from paternoster_engine.server.text_chains.feed import TextChainFeed
from paternoster_gateway.routing.prefix_routing import PrefixRouting
from paternoster_gateway.text_chains.reader import ChainReader, StreamFault

URL = "http://a"


def new_feed(start: int) -> TextChainFeed:
    """Make the feed of an engine that was started ``start`` times before."""
    return TextChainFeed(f"{start:032x}", "m", isolates_tenants=True, block_size=16)


class Gateway:
    """One replica's reader, and its connection, which loses frames and breaks off where a test says so."""

    def __init__(self) -> None:
        self.prefixes = PrefixRouting()
        self.reader = ChainReader(URL, "m", self.prefixes)
        self.stream: AsyncGenerator[bytes] | None = None
        self.frames = FrameReader()

    async def connect(self, feed: TextChainFeed) -> None:
        await self.disconnect()
        params = self.reader.start_connection()
        self.stream = feed.subscribe(params.get("instance"), int(params["after"]) if params else None)
        self.frames = FrameReader()

    async def disconnect(self) -> None:
        if self.stream is not None:
            await self.stream.aclose()
        self.stream = None

    async def read(self, sequence: int, *, loses: int | None = None, stops: int | None = None) -> None:
        """What is there, up to a heartbeat with ``sequence``: older ones may be on their way.

        ``loses``: number of a frame; ``stops``: steps until it breaks off.
        """
        assert self.stream is not None
        number = steps = 0
        async for data in self.stream:
            for frame in self.frames.feed(data):
                number += 1
                if number == loses and isinstance(frame, Changes):
                    continue
                for step in self.reader.apply(frame):
                    if steps == stops:
                        await self.disconnect()
                        return
                    step()
                    steps += 1
                if isinstance(frame, Heartbeat) and frame.sequence == sequence:
                    return

    def find_held(self, digests: Iterable[int]) -> dict[int, int]:
        """Tokens of those that are in the index."""
        found = {digest: self.prefixes.reported.find([digest]).get(URL) for digest in digests}
        return {digest: prefix.tokens for digest, prefix in found.items() if prefix is not None}


async def settle(gateway: Gateway, feed: TextChainFeed, **faults: int) -> None:
    """Read until the index is whole; ``faults`` are those of the first :meth:`Gateway.read`."""
    for _ in range(3):
        if gateway.stream is None:
            await gateway.connect(feed)
        subscriber = next(iter(feed._subscribers), None)
        try:
            if subscriber is not None:
                subscriber.add_frame(encode_frame(Heartbeat(feed.sequence)))
            else:
                # The first frame makes it a reader; a heartbeat follows in the end.
                asyncio.get_running_loop().call_later(0.001, push_heartbeats, feed)
            await gateway.read(feed.sequence, **faults)
        except StreamFault:
            gateway.reader.drop_replica()
            await gateway.disconnect()
        else:
            return
        faults = {}


def push_heartbeats(feed: TextChainFeed) -> None:
    for subscriber in feed._subscribers:
        subscriber.add_frame(encode_frame(Heartbeat(feed.sequence)))
