"""Readers have the engine's pieces, whether they stay, resume or begin anew; slow ones are closed."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from paternoster_contract.text_chains.stream import MAX_SUBSCRIBERS, Changes, FrameReader, Heartbeat, Hello, Snapshot
from paternoster_engine.server.text_chains import feed as feeds
from paternoster_engine.server.text_chains.feed import TextChainFeed

INSTANCE = "ab" * 16


def new_feed() -> TextChainFeed:
    return TextChainFeed(INSTANCE, "m", isolates_tenants=True, block_size=16)


class Reader:
    def __init__(self, index: dict[int, int], stream: AsyncGenerator[bytes]) -> None:
        self.index, self.stream = index, stream
        self.sequence = -1
        self.hello: Hello | None = None

    async def catch_up(self) -> None:
        """Read until a heartbeat."""
        frames = FrameReader()
        async for data in self.stream:
            for frame in frames.feed(data):
                match frame:
                    case Hello():
                        self.hello = frame
                        if not frame.resumes:
                            self.index.clear()
                    case Snapshot():
                        self.index.update(frame.stored)
                        self.sequence = frame.sequence
                    case Changes():
                        if frame.cleared:
                            self.index.clear()
                        for digest in frame.removed:
                            del self.index[digest]
                        self.index.update(frame.stored)
                        self.sequence = frame.sequence
                    case Heartbeat():
                        assert frame.sequence == self.sequence
                        return


def change_some(feed: TextChainFeed, chance: random.Random, truth: dict[int, int]) -> None:
    cleared = chance.random() < 0.1
    if cleared:
        truth.clear()
    changed = {chance.randrange(40): chance.choice((0, 16, 32)) for _ in range(chance.randrange(12))}
    for digest, tokens in changed.items():
        if tokens:
            truth[digest] = tokens
        else:
            truth.pop(digest, None)
    feed.publish(cleared, changed)
    if chance.random() < 0.6:
        feed.flush()


@pytest.mark.parametrize("seed", range(12))
async def test_every_reader_has_the_truth(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(feeds, "MAX_REPLAY_BYTES", 900)
    monkeypatch.setattr(feeds, "MAX_FRAME_PIECES", 5)
    chance, truth, feed = random.Random(seed), {}, new_feed()
    stays = Reader({}, feed.subscribe(None, None))
    left: list[tuple[dict[int, int], int]] = []
    resumed = 0
    for _ in range(25):
        for _ in range(chance.randrange(4)):
            change_some(feed, chance, truth)
        feed.flush()
        await stays.catch_up()
        assert stays.index == truth == feed.resident
        left.append((dict(stays.index), stays.sequence))
        index, after = chance.choice(left)
        again = Reader(dict(index), feed.subscribe(INSTANCE, after))
        again.sequence = after
        await again.catch_up()
        assert again.index == truth
        assert again.hello is not None
        resumed += again.hello.resumes
        await again.stream.aclose()
    assert 0 < resumed < 25
    assert feed.num_subscribers == 1


async def test_a_slow_reader_is_closed_and_the_number_of_readers_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_UNREAD_BYTES", 200)
    feed = new_feed()
    streams = [feed.subscribe(None, None) for _ in range(MAX_SUBSCRIBERS)]
    for stream in streams:
        await anext(stream)
    assert not feed.accepts
    assert [data async for data in feed.subscribe(None, None)] == []
    for number in range(40):
        feed.publish(False, {number: 16})
        feed.flush()
    rest = [data async for data in streams[0]]
    assert len(rest) == 1, "the snapshot that it began with, and nothing after it"
    assert feed.num_subscribers == MAX_SUBSCRIBERS - 1
    feed.close()
    for stream in streams[1:]:
        assert len([data async for data in stream]) <= 1
    assert feed.num_subscribers == 0


async def test_texts_are_recorded_while_there_are_readers_and_for_a_while_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "LINGER_SECONDS", 0.02)
    feed, seen = new_feed(), list[bool]()
    feed.on_read = seen.append
    assert not feed.is_read
    first, second = feed.subscribe(None, None), feed.subscribe(None, None)
    await anext(first)
    await anext(second)
    await first.aclose()
    await asyncio.sleep(0.05)
    assert seen == [True]
    await second.aclose()
    await anext(third := feed.subscribe(None, None))
    await asyncio.sleep(0.05)
    assert feed.is_read
    await third.aclose()
    async with asyncio.timeout(20):
        while feed.is_read:
            await asyncio.sleep(0.01)
    assert seen == [True, False]


async def test_a_change_during_a_heartbeats_pause_comes_before_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT_SECONDS", 0)
    subscriber = feeds.Subscriber()
    frames = asyncio.create_task(subscriber.next_frame())
    await asyncio.sleep(0)
    # Behind the end of the pause, and before the task that waits has seen it.
    asyncio.get_running_loop().call_soon(subscriber.add_frame, b"changes")
    assert await frames == b"changes"
