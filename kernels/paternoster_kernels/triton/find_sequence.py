"""Which sequence a program works for, when sequences of any length share one launch."""

import triton
import triton.language as tl


@triton.jit
def find_sequence(starts, tile, sequences, TILE: tl.constexpr):
    """Row of the sequence that tile number ``tile`` belongs to, when each is cut into tiles of ``TILE`` tokens.

    Sequence ``i`` has its first tile at ``starts[i] // TILE + i``: an upper bound that needs no lengths on the host,
    so a launch's grid depends on the numbers of tokens and sequences alone. Surplus tiles lie beyond their sequence.
    """
    low = tile * 0
    high = low + sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(starts + middle) // TILE + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


def tile_count(tokens: int, sequences: int, tile: int) -> int:
    """Tiles that a launch over ``tokens`` of ``sequences`` needs at most."""
    return tokens // tile + sequences
