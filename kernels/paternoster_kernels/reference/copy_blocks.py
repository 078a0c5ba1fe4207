"""Whole KV blocks copied: from one place of a cache to another, or between a cache and memory of the host."""

import torch


def copy_blocks(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """``target[pairs[i, 1]] = source[pairs[i, 0]]`` for ``pairs [n, 2]`` int64 on ``target``'s device.

    ``source`` and ``target``: ``[blocks, ...]``, contiguous, of one dtype and one shape from the second dimension on;
    they may be the same tensor if no block is both read and written. No block may be written twice.
    """
    target.index_copy_(0, pairs[:, 1], source.index_select(0, pairs[:, 0].to(source.device)).to(target.device))
