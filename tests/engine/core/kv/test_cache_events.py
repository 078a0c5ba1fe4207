"""An index that is built from the events alone holds what the prefix cache can find, after every step."""

from hypothesis import given, settings
from tests.engine.core.fake_model import CheckedEngine
from tests.engine.core.traces import NUM_TRACES, Arrival, arrivals, caps, configs, play

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.block_keys import chain_key
from paternoster_engine.core.kv.cache_events import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    CacheEvents,
)


class Index:
    """A subscriber's copy: the tokens of each block by group and key."""

    def __init__(self, block_size: int) -> None:
        self.tokens: dict[tuple[int, bytes], tuple[int, ...]] = {}
        self._block_size = block_size

    def apply(self, events: list[CacheEvent]) -> None:
        for event in events:
            match event:
                case BlocksStored():
                    self._store(event)
                case BlocksRemoved():
                    for key in event.keys:
                        del self.tokens[event.group, key]
                case CacheCleared():
                    self.tokens.clear()

    def _store(self, event: BlocksStored) -> None:
        assert len(event.tokens) == len(event.keys) * self._block_size
        parent = event.parent or event.scope
        for number, key in enumerate(event.keys):
            tokens = event.tokens[number * self._block_size : (number + 1) * self._block_size]
            assert chain_key(parent, list(tokens)) == key, "a key is the chain of its parent and tokens"
            assert (event.group, key) not in self.tokens, "stored twice"
            self.tokens[event.group, key] = tokens
            parent = key


class FollowedEngine(CheckedEngine):
    """Compares the index with the cache after each step."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.scheduler.pool.events = CacheEvents()
        self.index = Index(config.block_size)
        self.stored = self.removed = 0

    def step(self) -> None:
        super().step()
        self.follow()

    def follow(self) -> None:
        assert self.scheduler.pool.events is not None
        events = self.scheduler.pool.events.drain()
        self.stored += sum(isinstance(event, BlocksStored) for event in events)
        self.removed += sum(isinstance(event, BlocksRemoved) for event in events)
        self.index.apply(events)
        found = {key + (bytes([group]) if group else b"") for group, key in self.index.tokens}
        assert found == self.scheduler.pool.cached_keys


@settings(max_examples=NUM_TRACES, deadline=None)
@given(configs, arrivals, caps)
def test_index_from_events_equals_the_prefix_cache_on_any_trace(
    config: SchedulerConfig, traffic: list[Arrival], caps: list[int]
) -> None:
    engine = FollowedEngine(config)
    play(engine, traffic, caps)
    engine.scheduler.reset_prefix_cache()
    engine.follow()
    assert engine.index.tokens == {}


def test_blocks_of_one_prompt_are_one_event_and_evicted_ones_another() -> None:
    config = SchedulerConfig(
        max_num_seqs=1, max_batched_tokens=64, max_model_len=64, block_size=4, num_blocks=16, watermark_blocks=0
    )
    engine = FollowedEngine(config)
    for first in range(4):
        engine.add([first * 20 + i for i in range(20)], 1)
        while engine.scheduler.has_work:
            engine.step()
    assert engine.stored == 4
    assert 1 <= engine.removed <= 4
