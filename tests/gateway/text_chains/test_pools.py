"""The index is what the engine's pool holds, on any trace of the real scheduler and with any fault on the way to it."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.kv.followed_engine import FollowedEngine
from tests.engine.core.traces import NUM_TRACES, Arrival, arrivals, caps, configs, play
from tests.gateway.text_chains.gateway_reader import Gateway, new_feed, settle

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.server.text_chains import feed as feeds

FAULTS = ("read", "lose", "break off", "away", "restart of the gateway")
SMALL_REPLAY = 200
"""Bytes: some steps' changes, so that a gateway that is away for longer cannot resume."""


@settings(max_examples=NUM_TRACES // 4, deadline=None)
@given(st.lists(st.tuples(configs, arrivals), min_size=1, max_size=2), caps, st.integers(0, 2**32))
def test_the_index_equals_the_pool_whatever_happens_on_the_way(
    runs: list[tuple[SchedulerConfig, list[Arrival]]], caps: list[int], seed: int
) -> None:
    """Each of ``runs`` is one start of the engine."""
    engines = [FollowedEngine(config) for config, _ in runs]
    for engine, (_, traffic) in zip(engines, runs, strict=True):
        play(engine, traffic, caps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "MAX_REPLAY_BYTES", SMALL_REPLAY)
        asyncio.run(follow_engines(engines, random.Random(seed)))


async def follow_engines(engines: list[FollowedEngine], chance: random.Random) -> None:
    gateway = Gateway()
    for start, engine in enumerate(engines):
        await gateway.disconnect()
        feed = new_feed(start)
        away = 0
        for cleared, changed in engine.changes:
            feed.publish(cleared, dict(changed))
            feed.flush()
            away -= 1
            if away > 0:
                continue
            match chance.choice(FAULTS):
                case "read":
                    await settle(gateway, feed)
                case "lose":
                    await settle(gateway, feed, loses=chance.randrange(1, 4))
                case "break off":
                    await settle(gateway, feed, stops=chance.randrange(5))
                case "away":
                    await gateway.disconnect()
                    away = chance.randrange(30)
                case _:
                    await gateway.disconnect()
                    gateway = Gateway()
            if gateway.stream is not None:
                assert gateway.find_held(engine.pieces) == feed.resident
        await settle(gateway, feed)
        assert gateway.reader.is_whole
        assert gateway.find_held(engine.pieces) == engine.reported
        assert all(engine.finds(digest) for digest in engine.reported)
    await gateway.disconnect()
