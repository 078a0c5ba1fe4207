"""Groups of layers with windows: what is held, what the prefix cache finds, and what fits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams

windows = st.lists(st.none() | st.integers(1, 20), min_size=1, max_size=3).map(tuple)


def config(windows: tuple[int | None, ...], **changes: int | bool | str) -> SchedulerConfig:
    settings = {"max_num_seqs": 8, "max_batched_tokens": 8, "max_model_len": 200, "block_size": 4, "num_blocks": 600}
    return SchedulerConfig(**{**settings, "windows": windows, **changes})


@pytest.mark.parametrize("wrong", [(), (0,), (None, -1)])
def test_a_window_is_of_at_least_one_token(wrong: tuple[int | None, ...]) -> None:
    with pytest.raises(ValidationError, match="windows"):
        config(wrong)


@given(windows, st.integers(1, 190), st.sampled_from([1, 3, 8]), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_a_sequence_never_holds_more_than_is_said_of_it(
    windows: tuple[int | None, ...], prompt: int, size: int, budget: int
) -> None:
    """In each group, at each step; and a pool of just that is enough."""
    made = config(windows, block_size=size, max_batched_tokens=budget, max_num_seqs=1)
    groups = KVGroups(made)
    most = groups.count_sequence_blocks(prompt + 9)
    engine = CheckedEngine(made.replace(num_blocks=most))
    request = engine.add([i % 5 for i in range(prompt)], 10)
    while engine.scheduler.has_work:
        engine.step()
        for group, window in enumerate(windows):
            held = sum(block != 0 for block in request.block_table.block_ids[group :: len(windows)])
            if window is not None:
                assert held <= -(-(window - 1) // size) + 1 + -(-(budget - 1) // size)
        assert engine.scheduler.pool.num_used <= most
        assert engine.scheduler.projected_peak() >= 0
    assert request.output == unbatched([i % 5 for i in range(prompt)], 10, 200)


@given(windows, st.integers(0, 400), st.integers(1, 200))
def test_the_longest_sequence_is_the_longest(windows: tuple[int | None, ...], blocks: int, limit: int) -> None:
    groups = KVGroups(config(windows))
    longest = groups.find_longest_sequence(blocks, limit)
    assert longest == 0 or groups.count_sequence_blocks(longest) <= blocks
    assert longest == limit or groups.count_sequence_blocks(longest + 1) > blocks


@given(windows, st.integers(1, 60), st.sets(st.integers(0, 60)))
@settings(max_examples=200, deadline=None)
def test_the_longest_beginning_is_found(windows: tuple[int | None, ...], prompt: int, lost: set[int]) -> None:
    """Trying all finds the same: of each group the rows that the next token's window needs, whatever was evicted."""
    engine = CheckedEngine(config(windows))
    tokens = [i % 7 for i in range(prompt)]
    engine.add(tokens, 1)
    engine.run()
    kv, size, count = engine.scheduler.kv, 4, len(windows)
    probe = Request(RequestSpec("asked", tokens, SamplingParams(max_tokens=1)))
    names = {
        (row, g): kv.row_key(probe, row) + kv._tags[g] for row in range((prompt - 1) // size) for g in range(count)
    }
    for number, name in enumerate(names.values()):
        if number in lost and (block := kv.pool._by_key.pop(name, None)) is not None:
            block.key, kv.pool.num_cached = None, kv.pool.num_cached - 1

    def usable(rows: int) -> bool:
        position = rows * size
        return all(
            kv.pool.find_block(name) is not None
            for (row, group), name in names.items()
            if row < rows and ((window := windows[group]) is None or (row + 1) * size - 1 > position - window)
        )

    found = kv.find_prefix(probe)
    assert kv.num_tokens(found) // size == max(rows for rows in range((prompt - 1) // size + 1) if usable(rows))
    for entry, block in enumerate(found):
        assert block == (kv.pool.find_block(names[entry // count, entry % count]) if block else 0)


def test_another_groups_block_is_not_taken_for_one_of_the_same_tokens() -> None:
    engine = CheckedEngine(config((None, None, 6)))
    for _ in range(2):
        engine.add([1] * 40, 5)
        engine.run()
    keys = [block.key for block in engine.scheduler.pool._blocks if block.key is not None]
    assert len(keys) == len(set(keys)) > 20


def test_of_long_sequences_three_times_as_many_run_in_the_same_pool() -> None:
    """Five of six layers see 16 tokens: a block of one layer each, and as many bytes."""
    ran = []
    for seen in (16, None):
        windows = (None, *(seen,) * 5)
        engine = CheckedEngine(config(windows, num_blocks=6 * 2 * 50, max_num_seqs=16, admission="no-evict"))
        for number in range(12):
            engine.add([number] * 30, 160)
        most = 0
        while engine.scheduler.has_work:
            engine.step()
            most = max(most, len(engine.scheduler.running))
        ran.append(most)
    assert ran[0] >= 3 * ran[1], ran
