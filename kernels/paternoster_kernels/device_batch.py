"""The lengths and block tables of one step's sequences, on the device that reads them."""

from dataclasses import dataclass

import numpy as np
import torch

from paternoster_kernels.ragged_batch import RaggedBatch
from paternoster_kernels.upload import upload_tensor


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """Sequences of one step whose new tokens lie one after another; what a kernel reads in place of a plan.

    A row may be padding: a query length of 0 makes it write and read nothing.
    """

    query_starts: torch.Tensor
    """``[sequences + 1]`` int32: first new token of each sequence, and the number of tokens at the end."""
    seq_lens: torch.Tensor
    """``[sequences]`` int32: all tokens of each sequence, the new ones included."""
    block_tables: torch.Tensor
    """``[sequences, width]`` int32; entries beyond ``seq_lens`` are never read."""
    slots: torch.Tensor
    """``[tokens]`` int64: ``block * block_size + offset`` of each new token, -1 for one that is stored nowhere."""
    max_query_len: int
    """No query is longer; known on the host, where it chooses the launch."""
    max_seq_len: int
    """No sequence is longer; bounds the launch, so a captured graph may give its largest."""


def plan_attention(batch: RaggedBatch, cache: torch.Tensor) -> DeviceBatch:
    """``batch`` on the device of ``cache``, a layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``."""
    block_size, device = cache.shape[2], cache.device
    query_lens = np.asarray(batch.query_lens, dtype=np.int64)
    seq_lens = np.asarray(batch.seq_lens, dtype=np.int64)
    used = -(-seq_lens // block_size)
    tables = np.zeros((len(used), int(used.max())), dtype=np.int32)
    for row, (table, count) in enumerate(zip(batch.block_tables, used, strict=True)):
        tables[row, :count] = table[:count]
    ends = np.cumsum(query_lens)
    sequence = np.repeat(np.arange(len(query_lens)), query_lens)
    positions = np.arange(ends[-1]) - np.repeat(ends - seq_lens, query_lens)
    slots = tables[sequence, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return DeviceBatch(
        query_starts=upload_tensor(torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)), device),
        seq_lens=upload_tensor(torch.from_numpy(seq_lens.astype(np.int32)), device),
        block_tables=upload_tensor(torch.from_numpy(tables), device),
        slots=upload_tensor(torch.from_numpy(slots), device),
        max_query_len=int(query_lens.max()),
        max_seq_len=int(seq_lens.max()),
    )
