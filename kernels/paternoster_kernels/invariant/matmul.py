"""A product by weights in tiles of rows."""

from collections.abc import Callable

import torch

ROWS = 64
"""Rows of a tile. Fewer would waste less on a few rows, and read the weights more often for many."""


def in_tiles(product: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """``product(x)`` for ``x [rows, in]``, computed for ``ROWS`` rows at a time; the last tile is padded by zeros.

    A row's result is then a function of the row, wherever it lies in its tile.
    """
    rows = len(x)
    if rows == 0:
        return product(x)
    missing = -rows % ROWS
    padded = torch.cat((x, x.new_zeros(missing, x.shape[1]))) if missing else x
    tiles = [product(tile) for tile in padded.split(ROWS)]
    return (tiles[0] if len(tiles) == 1 else torch.cat(tiles))[:rows]
