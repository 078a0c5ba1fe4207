"""The next decode step's inputs made on the device."""

import torch
import triton
import triton.language as tl

from paternoster_kernels.device_batch import DeviceBatch

ROWS = 128


@triton.jit
def advance_decode_kernel(
    sampled, token_ids, positions, seq_lens, slots, block_tables, sequences, width, table_stride, block_size,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    used = row < sequences
    live = used & (tl.load(slots + row, mask=used, other=-1) >= 0)
    position = tl.load(positions + row, mask=live, other=0) + 1
    index = position // block_size
    here = live & (index < width)
    block = tl.load(block_tables + row.to(tl.int64) * table_stride + index, mask=here, other=0).to(tl.int64)
    going = here & (block > 0)
    tl.store(token_ids + row, tl.load(sampled + row, mask=going, other=0), mask=going)
    tl.store(positions + row, position, mask=going)
    tl.store(seq_lens + row, (position + 1).to(tl.int32), mask=going)
    tl.store(slots + row, tl.where(going, block * block_size + position % block_size, -1), mask=used)


def advance_decode(
    sampled: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor, batch: DeviceBatch, block_size: int
) -> None:
    """Advance a decoding batch by one token, as in the reference."""
    sequences, width = batch.block_tables.shape
    advance_decode_kernel[(triton.cdiv(sequences, ROWS),)](
        sampled, token_ids, positions, batch.seq_lens, batch.slots, batch.block_tables,
        sequences, width, batch.block_tables.stride(0), block_size, ROWS=ROWS,
    )  # fmt: skip
