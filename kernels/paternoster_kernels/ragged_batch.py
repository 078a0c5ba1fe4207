"""The lengths and block tables of one step's sequences."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Sequences of one step, on the host. Their new tokens lie one after another in this order.

    Fewest attention calls come from this order: single-token rows first, longest first.
    """

    query_lens: Sequence[int]
    """New tokens of each sequence, the last ones it has."""
    seq_lens: Sequence[int]
    """All tokens of each sequence, the new ones included."""
    block_tables: Sequence[Sequence[int]]
    """Blocks of each sequence, enough for ``seq_lens``; more are ignored."""
