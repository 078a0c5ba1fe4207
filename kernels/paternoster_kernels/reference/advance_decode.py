"""The next decode step's inputs made from this one's tokens, so that steps follow each other without the host."""

import torch

from paternoster_kernels.device_batch import DeviceBatch


def advance_decode(
    sampled: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor, batch: DeviceBatch, block_size: int
) -> None:
    """Make ``token_ids``, ``positions``, ``batch.seq_lens`` and ``batch.slots`` those of the next step, in place.

    Row ``i`` of ``sampled``, ``token_ids`` and ``positions`` ``[sequences]`` int64 is sequence ``i``, which has one new
    token. A row that was padding (slot -1) stays so. So does, from now on, a row whose next token has no block: its
    table ends before, or holds block 0 there.
    """
    width = batch.block_tables.shape[1]
    live = batch.slots >= 0
    moved = positions + 1
    index = moved // block_size
    block = batch.block_tables.gather(1, index.clamp(max=width - 1)[:, None]).squeeze(1).long()
    going = live & (index < width) & (block > 0)
    token_ids.copy_(torch.where(going, sampled, token_ids))
    positions.copy_(torch.where(going, moved, positions))
    batch.seq_lens.copy_(torch.where(going, moved + 1, batch.seq_lens))
    batch.slots.copy_(torch.where(going, block * block_size + moved % block_size, -1))
