"""Pieces are published exactly while the blocks of their text are cached, and readers agree however they read."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.vllm_plugin.text_chains.stub_core import BLOCK_SIZE, StubCore, StubScheduler, hash_blocks

from paternoster_contract.text_chains.stream import Changes, FrameReader, Snapshot
from paternoster_vllm.text_chains import block_watch, text_index
from paternoster_vllm.text_chains.block_watch import read_text_chains, unpack_pieces

TOKENS = list(range(12))
PIECES = [(3, 30), (4, 40), (7, 70), (9, 90), (12, 120)]
"""Tokens and digest: the first ends in no full block, the second and third in the first one."""
RESIDENT = {40: 4, 70: 4, 90: 8, 120: 12}


class Reader:
    """The index of a gateway, as it reads the frames of the core."""

    def __init__(self, core: StubCore) -> None:
        self.core = core
        self.instance, self.after = "", 0
        self.index: dict[int, int] = {}
        self.snapshots = 0

    def read(self) -> dict[int, int]:
        found = read_text_chains(self.core, self.instance, self.after)
        if not found["resumes"]:
            self.index.clear()
        for frame in FrameReader().feed(found["frames"]):
            if isinstance(frame, Snapshot):
                self.snapshots += frame.last
                assert not found["resumes"]
                self.after = frame.sequence
            else:
                assert isinstance(frame, Changes)
                self.after += 1
                assert frame.sequence == self.after
                if frame.cleared:
                    self.index.clear()
                for digest in frame.removed:
                    self.index.pop(digest, None)
            self.index |= frame.stored
        self.instance = found["instance"]
        return self.index


def test_pieces_are_tied_to_the_full_blocks_of_their_text() -> None:
    core = StubCore()
    reader = Reader(core)
    assert reader.read() == {}
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.add_request("b", TOKENS, [])
    core.scheduler.schedule()
    assert reader.read() == RESIDENT
    assert Reader(core).read() == RESIDENT


def test_a_prompt_of_several_steps_is_tied_as_far_as_it_is_computed() -> None:
    core = StubCore(StubScheduler(budget=5))
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    assert reader.read() == {40: 4, 70: 4}
    core.scheduler.schedule()
    assert reader.read() == {40: 4, 70: 4, 90: 8}
    core.scheduler.finish_request("a")
    core.scheduler.schedule()
    assert reader.read() == {40: 4, 70: 4, 90: 8}


class CountedKeys(list[bytes]):
    """Counts how many of its items are read one by one."""

    num_read = 0

    def __getitem__(self, place: Any) -> Any:
        self.num_read += isinstance(place, int)
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[bytes]:
        return (self[place] for place in range(len(self)))


def test_a_step_of_a_long_prompt_passes_the_blocks_of_the_steps_before_no_more() -> None:
    core = StubCore(StubScheduler(budget=BLOCK_SIZE))
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", list(range(100 * BLOCK_SIZE)), [(100 * BLOCK_SIZE, 1)])
    keys = core.scheduler.requests["a"].block_hashes = CountedKeys(core.scheduler.requests["a"].block_hashes)
    for _ in range(100):
        core.scheduler.schedule()
    assert reader.read() == {1: 100 * BLOCK_SIZE}
    assert keys.num_read < 3 * 100


def test_a_prompt_whose_first_blocks_were_evicted_between_its_steps_is_tied_anew() -> None:
    core = StubCore(StubScheduler(budget=9))
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    core.scheduler.pool.evict(hash_blocks(TOKENS[:4]))
    assert reader.read() == {}
    core.scheduler.schedule()
    assert reader.read() == RESIDENT


def test_what_is_behind_an_evicted_block_is_gone_until_a_prompt_passes_it_again() -> None:
    core = StubCore()
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    core.scheduler.pool.evict(hash_blocks(TOKENS[:8]))
    assert reader.read() == {40: 4, 70: 4}
    core.scheduler.add_request("b", TOKENS, PIECES)
    core.scheduler.schedule()
    assert reader.read() == RESIDENT
    assert reader.snapshots == 1


def test_a_block_that_another_one_equals_stays() -> None:
    core = StubCore()
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    core.scheduler.pool.cache(hash_blocks(TOKENS[:4]))
    core.scheduler.pool.cached_block_hash_to_block.pop(hash_blocks(TOKENS[:4]) + bytes(4), 1)
    assert reader.read() == RESIDENT


def test_a_reset_of_the_cache_clears_all_and_is_followed_on() -> None:
    core = StubCore()
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    reader.read()
    assert core.scheduler.pool.reset_prefix_cache()
    assert reader.read() == {}
    core.scheduler.add_request("b", TOKENS, PIECES)
    core.scheduler.schedule()
    assert reader.read() == RESIDENT
    core.scheduler.pool.evict(hash_blocks(TOKENS[:4]))
    assert reader.read() == {}
    assert reader.snapshots == 1


def test_what_is_cached_before_anyone_reads_is_found_with_the_next_prompt() -> None:
    core = StubCore()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    reader = Reader(core)
    assert reader.read() == {}
    core.scheduler.add_request("b", TOKENS, PIECES)
    core.scheduler.schedule()
    assert reader.read() == RESIDENT


@given(data=st.data())
def test_readers_agree_and_no_piece_is_published_whose_blocks_are_not_cached(data: st.DataObject) -> None:
    """One of them reads seldom, beyond what is kept of the changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_watch, "MAX_REPLAY_BYTES", 200)
        patch.setattr(text_index, "MAX_ROW_PIECES", 3)
        core = StubCore(StubScheduler(budget=data.draw(st.integers(1, 20))))
        often, seldom = Reader(core), Reader(core)
        often.read()
        truth: dict[int, list[bytes]] = {}
        prompts = st.lists(st.integers(0, 1), min_size=BLOCK_SIZE, max_size=24)
        for number in range(data.draw(st.integers(1, 25))):
            match data.draw(st.integers(0, 3)):
                case 0:
                    tokens = data.draw(prompts)
                    pieces = [(end, hash(tuple(tokens[:end])) & 2**64 - 1) for end in range(1, len(tokens) + 1, 2)]
                    core.scheduler.add_request(str(number), tokens, pieces)
                    for end, digest in pieces:
                        truth[digest] = [hash_blocks(tokens[:stop]) for stop in range(BLOCK_SIZE, end + 1, BLOCK_SIZE)]
                case 1:
                    core.scheduler.schedule()
                case 2 if core.scheduler.requests:
                    core.scheduler.finish_request(data.draw(st.sampled_from(sorted(core.scheduler.requests))))
                case _:
                    keys = sorted(core.scheduler.pool.cached_block_hash_to_block.blocks)
                    if keys:
                        core.scheduler.pool.evict(data.draw(st.sampled_from(keys))[:-4])
            if data.draw(st.booleans()):
                often.read()
            for digest, tokens_held in often.read().items():
                assert tokens_held == BLOCK_SIZE * len(truth[digest])
                assert all(core.scheduler.pool.get_cached_block(key, [0]) for key in truth[digest])
        assert seldom.read() == often.read() == Reader(core).read()


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_index, "MAX_ROW_PIECES", 2)
    core = StubCore()
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, [(4, 1), (4, 2), (4, 3), (8, 4)])
    core.scheduler.schedule()
    assert reader.read() == {2: 4, 3: 4, 4: 8}
    monkeypatch.setattr(text_index, "MAX_PIECES", 3)
    core.scheduler.add_request("b", list(reversed(TOKENS)), [(4, 5)])
    core.scheduler.schedule()
    assert reader.read() == {2: 4, 3: 4, 4: 8}


class SlidingWindowSpec:
    pass


@pytest.mark.parametrize(
    ("scheduler", "text"),
    [
        (StubScheduler(SlidingWindowSpec()), "the layers' caches are SlidingWindowSpec: must be one of"),
        (SimpleNamespace(), "no attribute 'kv_cache_config'"),
    ],
)
def test_a_core_that_lacks_what_is_needed_names_it_and_is_not_changed(scheduler: Any, text: str) -> None:
    before = dict(vars(scheduler))
    found = read_text_chains(SimpleNamespace(scheduler=scheduler), "", 0)
    assert text in found["unsupported"]
    assert vars(scheduler) == before


def test_a_cache_that_is_off_is_named() -> None:
    core = StubCore()
    core.scheduler.pool.enable_caching = False
    assert read_text_chains(core, "", 0) == {"unsupported": "the prefix cache is off"}


@pytest.mark.parametrize("data", [None, b"x", "text", 7])
def test_other_arguments_than_pieces_are_none(data: Any) -> None:
    assert unpack_pieces(data) == []


class OtherScheduler(StubScheduler):
    """A scheduler whose output has another name for what the plugin reads."""

    def schedule(self) -> Any:
        output = super().schedule()
        output.finished_ids = output.__dict__.pop("finished_req_ids")
        return output


def test_a_scheduler_that_differs_goes_on_without_text_chains() -> None:
    core = StubCore(OtherScheduler())
    reader = Reader(core)
    reader.read()
    for name in ("a", "b"):
        core.scheduler.add_request(name, TOKENS, PIECES)
        assert core.scheduler.schedule().num_scheduled_tokens[name] == len(TOKENS)
    assert read_text_chains(core, reader.instance, reader.after) == {
        "unsupported": "schedule: AttributeError: 'types.SimpleNamespace' object has no attribute 'finished_req_ids'"
    }


def test_a_block_pool_that_differs_evicts_without_text_chains() -> None:
    core, first = StubCore(), hash_blocks(TOKENS[:BLOCK_SIZE])
    reader = Reader(core)
    reader.read()
    core.scheduler.add_request("a", TOKENS, PIECES)
    core.scheduler.schedule()
    core.scheduler.pool.cached_block_hash_to_block.get_one_block = lambda: None  # type: ignore[method-assign]
    core.scheduler.pool.evict(first)
    assert first + bytes(4) not in core.scheduler.pool.cached_block_hash_to_block.blocks
    assert read_text_chains(core, reader.instance, reader.after)["unsupported"].startswith("pop: TypeError: ")
