"""Products of adapters are near to exact, and for each row alike in any batch."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import reference
from paternoster_kernels.cpu import lora as cpu
from paternoster_kernels.lora_batch import LoraBatch, LoraMatrices, LoraMatrix

WIDTHS = (33, 64)


@pytest.fixture
def native(instructions: str) -> None:
    if instructions in ("neon", "neon_bf16"):
        pytest.skip("a batch holds addresses, which another machine's emulator does not follow")


def _adapter(rank: int, inputs: int, widths: Sequence[int], dtype: torch.dtype, seed: int) -> LoraMatrices:
    """One that leaves matrix 0 and, of an odd seed, the last one as they are."""
    normal = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
    matrices = [
        LoraMatrix(normal(rank, inputs).to(dtype), normal(rank, width).to(dtype), 0.5 + seed / 3) for width in widths
    ]
    return LoraMatrices([None, *matrices[:-1], None if seed % 2 else matrices[-1]])


def _check(
    add: object, segments: Sequence[tuple[LoraMatrices | None, int]], inputs: int, dtype: torch.dtype, seed: int
) -> None:
    assert callable(add)
    batch = LoraBatch(segments)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch.starts[-1], inputs, generator=generator).to(dtype)
    before = torch.randn(len(x), sum(WIDTHS), generator=generator).to(dtype)
    got, exact, size = before.clone(), before.double(), before.double().abs()
    add(got, x, batch, 1, WIDTHS)
    for (adapter, _), start, stop in zip(segments, batch.starts, batch.starts[1:], strict=False):
        begin = 0
        for matrix, width in zip(adapter.matrices[1:] if adapter else (), WIDTHS, strict=bool(adapter)):
            if matrix is not None:
                columns, rows = slice(begin, begin + width), x[start:stop].double()
                down, up = matrix.down.double(), matrix.up.double()
                exact[start:stop, columns] += rows @ down.T @ up * matrix.scale
                size[start:stop, columns] += rows.abs() @ down.abs().T @ up.abs() * matrix.scale
            begin += width
        if adapter is None:
            assert torch.equal(got[start:stop], before[start:stop])
    rounding = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-22
    assert bool(((got.double() - exact).abs() <= rounding * exact.abs() + 2.0**-18 * size).all())
    for row in range(len(x)):
        alone, own = before[row : row + 1].clone(), next(i for i, stop in enumerate(batch.starts[1:]) if row < stop)
        if (adapter := segments[own][0]) is not None:
            add(alone, x[row : row + 1], LoraBatch([(adapter, 1)]), 1, WIDTHS)
            assert torch.equal(alone[0], got[row])


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.tuples(st.sampled_from([None, 1, 3, 8, 16, 64]), st.integers(1, 9)), min_size=1, max_size=5),
    inputs=st.sampled_from([1, 31, 32, 72, 160]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    threads=st.integers(1, 2),
    seed=st.integers(0, 99),
)
@pytest.mark.usefixtures("native")
def test_what_adapters_add(
    counts: list[tuple[int | None, int]], inputs: int, dtype: torch.dtype, threads: int, seed: int
) -> None:
    segments = [
        (None if rank is None else _adapter(rank, inputs, WIDTHS, dtype, seed + number), count)
        for number, (rank, count) in enumerate([(8, 1), *counts])
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        _check(cpu.add_lora, segments, inputs, dtype, seed)
        _check(reference.add_lora, segments, inputs, dtype, seed)
    finally:
        torch.set_num_threads(before)
