"""Copies of blocks and the next step's inputs: whole numbers, so equality and nothing less."""

import dataclasses

import pytest
import torch
from tests.kernels.device.guard_bands import poison

from paternoster_kernels import DeviceBatch, reference
from paternoster_kernels.triton.advance_decode import advance_decode
from paternoster_kernels.triton.kv_cache.copy_blocks import copy_blocks


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=["bf16", "fp32", "int8"])
@pytest.mark.parametrize("width", [4, 2048, 2052])
def test_copies_between_caches(width: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    device = generator.device
    source = torch.randint(-100, 100, (6, 2, width), generator=generator, device=device).to(dtype)
    target = torch.zeros(9, 2, width, dtype=dtype, device=device)
    expected = target.clone()
    pairs = torch.tensor([[5, 0], [1, 8], [5, 3]], device=device)
    reference.copy_blocks(source, expected, pairs)
    copy_blocks(source, target, pairs)
    assert torch.equal(target, expected)
    assert torch.equal(expected[[0, 8, 3]], source[[5, 1, 5]])
    assert not expected[[1, 2, 4, 5, 6, 7]].any()


def test_copies_inside_one_cache(generator: torch.Generator) -> None:
    cache = torch.randn(5, 3, 32, 128, generator=generator, device=generator.device)
    before = cache.clone()
    copy_blocks(cache, cache, torch.tensor([[1, 4], [0, 2]], device=generator.device))
    assert torch.equal(cache, before[[0, 1, 0, 3, 1]])


def test_no_pairs_copy_nothing(generator: torch.Generator) -> None:
    cache = torch.zeros(2, 1, 4, device=generator.device)
    copy_blocks(cache, cache, torch.zeros(0, 2, dtype=torch.int64, device=generator.device))
    assert not cache.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a CUDA device")
def test_swaps_with_pinned_memory(generator: torch.Generator) -> None:
    cache = torch.randn(5, 3, 32, 128, generator=generator, device=generator.device)
    host = torch.zeros(3, 3, 32, 128).pin_memory()
    copy_blocks(cache, host, torch.tensor([[4, 0], [2, 1]], device=generator.device))
    torch.cuda.synchronize()
    assert torch.equal(host[:2], cache[[4, 2]].cpu())
    copy_blocks(host, cache, torch.tensor([[0, 1]], device=generator.device))
    assert torch.equal(cache[1], cache[4])


@pytest.mark.parametrize("rows", [1, 127, 128, 129])
def test_advance_decode(rows: int, generator: torch.Generator) -> None:
    """Rows in the middle of a block, at its edge, at the end of their table, without a next block, and padding."""
    device, block_size, width = generator.device, 32, 3
    tables = 1 + torch.randint(1000, (rows, width), generator=generator, device=device).int()
    tables[torch.rand(tables.shape, generator=generator, device=device) < 0.2] = 0
    edges = torch.tensor([0, 30, 31, 32, 63, 64, 94, 95], device=device)
    positions = edges[torch.randint(len(edges), (rows,), generator=generator, device=device)]
    slots = torch.randint(32, 9999, (rows,), generator=generator, device=device)
    slots[torch.rand(rows, generator=generator, device=device) < 0.2] = -1
    batch = DeviceBatch(
        query_starts=torch.arange(rows + 1, device=device).int(),
        seq_lens=(positions + 1).int(),
        block_tables=tables,
        slots=slots,
        max_query_len=1,
        max_seq_len=96,
    )
    sampled = torch.randint(50_000, (rows,), generator=generator, device=device)
    results = []
    for advance in (advance_decode, reference.advance_decode):
        own = dataclasses.replace(batch, seq_lens=batch.seq_lens.clone(), slots=slots.clone())
        token_ids, moved = poison((rows,), torch.int64, device), positions.clone()
        advance(sampled, token_ids, moved, own, block_size)
        results.append((token_ids, moved, own.seq_lens, own.slots))
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)
    for row, (before, after, slot) in enumerate(
        zip(positions.tolist(), moved.tolist(), own.slots.tolist(), strict=True)
    ):
        block = int(tables[row, (before + 1) // 32]) if before < 95 else 0
        going = int(slots[row]) >= 0 and block > 0
        assert after == before + going
        assert slot == (block * 32 + after % 32 if going else -1)
        assert int(token_ids[row]) == (int(sampled[row]) if going else -1_234_567)
