"""Prompts of simulated requests."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_simulator.prompts import filler_tokens, make_prompt, own_token
from paternoster_simulator.replica.block_count import BlockCount
from paternoster_traces.trace import PREFIX_BLOCK_TOKENS


@given(st.integers(1, 3000), st.lists(st.integers(0, 10**6), max_size=5), st.integers(0, 10**6))
def test_a_prompt_is_as_long_as_asked_and_shares_its_blocks(length: int, blocks: list[int], number: int) -> None:
    tokens = make_prompt(length, blocks, number)
    assert len(tokens) == length == len(filler_tokens(length))
    shared = min(length, len(blocks) * PREFIX_BLOCK_TOKENS)
    assert tokens[:shared] == make_prompt(length, blocks, number + 1)[:shared]
    assert set(tokens[shared:]) <= {own_token(number)}


def test_a_pool_that_counts() -> None:
    pool = BlockCount(10)
    table = pool.allocate(4)
    assert (len(table), pool.num_used, pool.num_free) == (4, 4, 6)
    pool.release(reversed(table))
    assert pool.num_available == 10
