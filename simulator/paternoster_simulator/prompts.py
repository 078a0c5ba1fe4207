"""Tokens of a simulated prompt: filler, but for the blocks that a trace says are shared."""

from collections.abc import Sequence
from itertools import islice, repeat
from typing import cast

from paternoster_traces.trace import PREFIX_BLOCK_TOKENS

OWN_TOKENS = 2**31
"""Tokens from here on belong to one request alone; prefix block ids stay below."""


def filler_tokens(length: int) -> list[int]:
    """A prompt of ``length`` tokens that are never read, for an engine without a prefix cache."""
    # A range has a length and takes no memory; without a prefix cache nothing but the length is read.
    return cast("list[int]", range(length))


def own_token(number: int) -> int:
    """A token that only request ``number`` has: nothing that it generates is found by another."""
    return OWN_TOKENS + number % OWN_TOKENS


def make_prompt(length: int, prefix_blocks: Sequence[int], number: int) -> list[int]:
    """The prompt of request ``number``: equal leading block ids give equal leading tokens, the rest is its own."""
    shared = (token for block in prefix_blocks for token in repeat(block % OWN_TOKENS, PREFIX_BLOCK_TOKENS))
    tokens = list(islice(shared, length))
    tokens += repeat(own_token(number), length - len(tokens))
    return tokens
