"""A reader's index is what the engine's feed holds, through restarts, gaps and pauses; hostile frames are contained.

The engine's side is the real feed.
"""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.gateway.text_chains.gateway_reader import URL, Gateway, new_feed, settle

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
from paternoster_engine.server.text_chains import feed as feeds
from paternoster_gateway.prefixes.prefix_index import NO_PREFIX
from paternoster_gateway.routing.prefix_routing import Pick, PrefixRouting, PromptChain
from paternoster_gateway.text_chains.reader import ChainReader, StreamFault

DIGESTS = st.integers(1, 12)
HELLO = Hello(version=VERSION, instance="ab" * 16, resumes=False, model="m", isolates_tenants=True, block_size=16)


CHANGES = st.dictionaries(DIGESTS, st.sampled_from([0, 16, 32]), max_size=12)
EVENTS = st.one_of(
    st.tuples(st.just("change"), CHANGES),
    st.tuples(st.just("clear"), CHANGES),
    st.tuples(st.sampled_from(["restart", "disconnect", "lose", "break off", "read"]), st.integers(0, 4)),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=14), st.sampled_from([0, 100, 2**20]))
@example(
    [
        ("read", 4), ("disconnect", 4), ("clear", {}), ("break off", 1), ("change", dict.fromkeys(range(1, 9), 16)),
        ("lose", 3), ("clear", {5: 0, 11: 0}),
    ],
    100,
)  # fmt: skip
def test_the_index_is_what_the_engine_has(events: list[tuple[str, object]], replay_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "MAX_REPLAY_BYTES", replay_bytes)
        asyncio.run(check(events))


async def check(events: list[tuple[str, object]]) -> None:
    gateway, starts = Gateway(), 0
    feed = new_feed(starts)
    for kind, detail in events:
        if kind in ("change", "clear"):
            assert isinstance(detail, dict)
            feed.publish(kind == "clear", dict(detail))
            feed.flush()
        elif kind == "restart":
            starts += 1
            await gateway.disconnect()
            feed = new_feed(starts)
        elif kind == "disconnect":
            await gateway.disconnect()
        else:
            assert isinstance(detail, int)
            await settle(gateway, feed, **{"lose": {"loses": detail}, "break off": {"stops": detail}}.get(kind, {}))
    await settle(gateway, feed)
    assert gateway.reader.is_whole
    assert gateway.find_held(range(1, 13)) == feed.resident
    await gateway.disconnect()


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
    prompt = PromptChain([1, 2], [512, 1024], 1024)
    prefixes.send("m", prompt, Pick(NO_PREFIX, 0, 0.0, 2), URL, 0, 0.0)
    reader = ChainReader(URL, "m", prefixes)
    reader.start_connection()
    reader.drop_replica()
    assert prefixes.find("m", prompt, 60.0)[URL].pieces == 2
    for step in reader.apply(HELLO):
        step()
    assert URL not in prefixes.find("m", prompt, 60.0)
