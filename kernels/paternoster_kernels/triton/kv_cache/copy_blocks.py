"""Whole KV blocks copied; one side may be pinned memory of the host, which a kernel reads and writes over the bus."""

import torch
import triton
import triton.language as tl

CHUNK = 1024


@triton.jit
def copy_blocks_kernel(source, target, pairs, block_words, CHUNK: tl.constexpr):
    """Grid: pairs, chunks of a block."""
    pair = tl.program_id(0)
    words = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    used = words < block_words
    read = tl.load(pairs + 2 * pair) * block_words
    write = tl.load(pairs + 2 * pair + 1) * block_words
    tl.store(target + write + words, tl.load(source + read + words, mask=used, other=0), mask=used)


def copy_blocks(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy blocks by ``pairs``; a host's ``source`` or ``target`` must be pinned, and ``pairs`` on the device."""
    # Moved as 32-bit words, whatever they mean.
    source, target = source.view(torch.int32).flatten(1), target.view(torch.int32).flatten(1)
    words = source.shape[1]
    if len(pairs):
        copy_blocks_kernel[(len(pairs), triton.cdiv(words, CHUNK))](source, target, pairs, words, CHUNK=CHUNK)
