"""A reader's index is what the engine's feed holds, through restarts, gaps and pauses; hostile frames are contained.

The engine's side is the real feed.
"""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.text_chains.stream import (
    VERSION,
    Changes,
    Frame,
    FrameReader,
    Heartbeat,
    Hello,
    InvalidStream,
    Snapshot,
    encode_frame,
)
from paternoster_engine.server.text_chains.feed import TextChainFeed
from paternoster_gateway.prefixes.prefix_index import NO_PREFIX
from paternoster_gateway.routing.prefix_routing import Pick, PrefixRouting, Prompt
from paternoster_gateway.text_chains.reader import ChainReader, StreamFault

URL = "http://a"
DIGESTS = st.integers(1, 12)
HELLO = Hello(version=VERSION, instance="ab" * 16, resumes=False, model="m", isolates_tenants=True, block_size=16)


class Gateway:
    """One replica's reader, and its connection."""

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

    async def read(self, *, loses: int | None = None, stops: int | None = None) -> None:
        """What is there, up to a heartbeat; ``loses``: number of a frame; ``stops``: steps until it breaks off."""
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
                if isinstance(frame, Heartbeat):
                    return

    @property
    def held(self) -> dict[int, int]:
        found = {digest: self.prefixes.reported.find([digest]).get(URL) for digest in range(1, 13)}
        return {digest: prefix.tokens for digest, prefix in found.items() if prefix is not None}


CHANGES = st.dictionaries(DIGESTS, st.sampled_from([0, 16, 32]), max_size=12)
EVENTS = st.one_of(
    st.tuples(st.just("change"), CHANGES),
    st.tuples(st.just("clear"), CHANGES),
    st.tuples(st.sampled_from(["restart", "disconnect", "lose", "break off", "read"]), st.integers(0, 4)),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=14))
def test_the_index_is_what_the_engine_has(events: list[tuple[str, object]]) -> None:
    asyncio.run(check(events))


async def check(events: list[tuple[str, object]]) -> None:
    gateway, starts = Gateway(), 0
    feed = TextChainFeed(f"{starts:032x}", "m", isolates_tenants=True, block_size=16)
    for kind, detail in events:
        if kind in ("change", "clear"):
            assert isinstance(detail, dict)
            feed.publish(kind == "clear", dict(detail))
            feed.flush()
        elif kind == "restart":
            starts += 1
            await gateway.disconnect()
            feed = TextChainFeed(f"{starts:032x}", "m", isolates_tenants=True, block_size=16)
        elif kind == "disconnect":
            await gateway.disconnect()
        else:
            assert isinstance(detail, int)
            await settle(gateway, feed, **{"lose": {"loses": detail}, "break off": {"stops": detail}}.get(kind, {}))
    await settle(gateway, feed)
    assert gateway.reader.is_whole
    assert gateway.held == feed.resident
    await gateway.disconnect()


async def settle(gateway: Gateway, feed: TextChainFeed, **faults: int) -> None:
    for _ in range(3):
        if gateway.stream is None:
            await gateway.connect(feed)
        subscriber = next(iter(feed._subscribers), None)
        try:
            if subscriber is not None and not subscriber._frames:
                subscriber.add_frame(encode_frame(Heartbeat(feed.sequence)))
            elif subscriber is None:
                # The first frame makes it a reader; a heartbeat follows in the end.
                asyncio.get_running_loop().call_later(0.001, push_heartbeats, feed)
            await gateway.read(**faults)
        except StreamFault:
            gateway.reader.drop_replica()
            await gateway.disconnect()
        else:
            return
        faults = {}


def push_heartbeats(feed: TextChainFeed) -> None:
    for subscriber in feed._subscribers:
        subscriber.add_frame(encode_frame(Heartbeat(feed.sequence)))


FRAMES = st.one_of(
    st.builds(
        Hello, version=st.integers(VERSION - 1, VERSION), instance=st.sampled_from(["ab" * 16, "cd" * 16]),
        resumes=st.booleans(),
        model=st.sampled_from(["m", "n"]), isolates_tenants=st.booleans(), block_size=st.just(16),
    ),
    st.builds(Snapshot, st.integers(0, 3), st.dictionaries(DIGESTS, DIGESTS), st.booleans()),
    st.builds(Changes, st.integers(0, 3), st.dictionaries(DIGESTS, DIGESTS), st.lists(DIGESTS), st.booleans()),
    st.builds(Heartbeat, st.integers(0, 3)),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(FRAMES, st.binary(max_size=40)), max_size=12), st.booleans())
def test_whatever_comes_is_read_or_not_believed(sent: list[Frame | bytes], greets: bool) -> None:
    prefixes, frames = PrefixRouting(), FrameReader()
    reader = ChainReader(URL, "m", prefixes)
    reader.start_connection()
    try:
        for each in [HELLO, *sent] if greets else sent:
            for frame in frames.feed(each if isinstance(each, bytes) else encode_frame(each)):
                for step in reader.apply(frame):
                    step()
    except (StreamFault, InvalidStream):
        reader.drop_replica()
        assert not prefixes.reported.replicas
        assert prefixes.isolates_tenants([URL])


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([Heartbeat(0)], "garbage"),
        ([HELLO.model_copy(update={"version": VERSION - 1})], "version"),
        ([HELLO.model_copy(update={"model": "another"})], "model"),
        ([HELLO.model_copy(update={"resumes": True})], "garbage"),
        ([HELLO, HELLO], "garbage"),
        ([HELLO, Changes(1)], "garbage"),
        ([HELLO, Snapshot(4, {}, False), Snapshot(5)], "garbage"),
        ([HELLO, Snapshot(4), Snapshot(4)], "garbage"),
        ([HELLO, Snapshot(4), Changes(6)], "gap"),
        ([HELLO, Snapshot(4), Heartbeat(5)], "gap"),
    ],
)
def test_why_a_stream_is_not_believed(frames: list[Frame], reason: str) -> None:
    reader = ChainReader(URL, "m", PrefixRouting())
    with pytest.raises(StreamFault) as fault:
        for frame in frames:
            for step in reader.apply(frame):
                step()
    assert fault.value.reason == reason


def test_what_a_replica_without_a_stream_was_sent_is_remembered_while_streams_are_tried() -> None:
    prefixes = PrefixRouting()
    prompt = Prompt([1, 2], [512, 1024], 1024)
    prefixes.send("m", prompt, Pick(NO_PREFIX, 0, 0.0, 2), URL, 0, 0.0)
    reader = ChainReader(URL, "m", prefixes)
    reader.start_connection()
    reader.drop_replica()
    assert prefixes.find("m", prompt, 60.0)[URL].pieces == 2
    for step in reader.apply(HELLO):
        step()
    assert URL not in prefixes.find("m", prompt, 60.0)
