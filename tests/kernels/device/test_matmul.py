"""Products with quantised weights and with adapters against the references in float64."""

import pytest
import torch
from tests.kernels.device.guard_bands import guarded_outputs

from paternoster_kernels import reference
from paternoster_kernels.lora_batch import LoraBatch, LoraMatrices, LoraMatrix
from paternoster_kernels.reference.quantized_matmul import quantize_int4, quantize_weight
from paternoster_kernels.triton.products.add_lora import add_lora
from paternoster_kernels.triton.products.grouped_matmul import grouped_matmul
from paternoster_kernels.triton.products.int4_matmul import int4_matmul
from paternoster_kernels.triton.products.lora_expand import lora_expand
from paternoster_kernels.triton.products.lora_shrink import lora_shrink
from paternoster_kernels.triton.products.matmul import matmul
from paternoster_kernels.triton.products.weight_only_matmul import weight_only_matmul

ROUNDING = {torch.float32: 2.0**-20, torch.bfloat16: 1.1 * 2.0**-8, torch.float16: 1.1 * 2.0**-11}
"""Relative error of one result: sums are float32, and the result is rounded once."""
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def close(got: torch.Tensor, expected: torch.Tensor, size: torch.Tensor) -> None:
    """Within the result's rounding, and within float32's of a sum whose absolute terms add up to ``size``."""
    allowed = expected.abs() * ROUNDING[got.dtype] + size * 2.0**-20
    assert ((got.double() - expected).abs() <= allowed).all()


@dtypes
@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 33, 64), (17, 32, 127), (65, 70, 130)])
def test_weight_only(
    rows: int, outputs: int, inputs: int, stored: torch.dtype, dtype: torch.dtype, generator: torch.Generator
) -> None:
    device = generator.device
    x = torch.randn(rows, inputs + 7, generator=generator, device=device).to(dtype)[:, :inputs]
    weight, scales = quantize_weight(torch.randn(outputs, inputs, generator=generator, device=device), stored)
    with guarded_outputs():
        got = weight_only_matmul(x, weight, scales)
    expected = reference.weight_only_matmul(x.double(), weight, scales)
    close(got, expected, reference.weight_only_matmul(x.double().abs(), weight.double().abs(), scales))


@dtypes
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 33, 64), (17, 32, 127), (65, 70, 130)])
def test_plain(rows: int, outputs: int, inputs: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    device = generator.device
    x = torch.randn(rows, inputs + 7, generator=generator, device=device).to(dtype)[:, :inputs]
    weight = torch.randn(outputs, inputs, generator=generator, device=device).to(dtype)
    with guarded_outputs():
        got = matmul(x, weight)
    close(got, reference.matmul(x.double(), weight.double()), reference.matmul(x.double().abs(), weight.double().abs()))
    for row in (0, rows - 1):
        assert torch.equal(matmul(x[row : row + 1], weight)[0], got[row])
    assert matmul(x[:0], weight).shape == (0, outputs)


@dtypes
@pytest.mark.parametrize(
    ("counts", "outputs", "inputs"), [((0, 1, 0), 33, 64), ((65, 0, 3, 130), 32, 70), ((5,), 1, 1)]
)
def test_grouped(
    counts: tuple[int, ...], outputs: int, inputs: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    """Experts without a row, with more than a tile, and rows that several ask for."""
    device, pairs = generator.device, sum(counts)
    x = torch.randn(11, inputs + 5, generator=generator, device=device).to(dtype)[:, :inputs]
    weight = torch.randn(len(counts), outputs, inputs, generator=generator, device=device).to(dtype)
    rows = torch.randint(11, (pairs,), generator=generator, device=device)
    starts = torch.tensor((0, *counts), device=device).cumsum(0).int()
    with guarded_outputs():
        got = grouped_matmul(x, weight, rows, starts)
    close(
        got,
        reference.grouped_matmul(x.double(), weight.double(), rows, starts),
        reference.grouped_matmul(x.double().abs(), weight.double().abs(), rows, starts),
    )
    if counts[-1]:
        alone = grouped_matmul(x, weight[-1:].contiguous(), rows[-1:], starts.new_tensor([0, 1]))
        assert torch.equal(alone[0], got[-1])
    assert grouped_matmul(x, weight, rows[:0], torch.zeros_like(starts)).shape == (0, outputs)


@dtypes
@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize(("rows", "outputs"), [(1, 33), (65, 70)])
def test_int4(rows: int, outputs: int, group: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    device, inputs = generator.device, 3 * 64
    x = torch.randn(rows, inputs, generator=generator, device=device).to(dtype)
    quantised = quantize_int4(torch.randn(outputs, inputs, generator=generator, device=device), group)
    with guarded_outputs():
        got = int4_matmul(x, *quantised)
    identity = torch.eye(inputs, dtype=torch.float64, device=device)
    magnitude = x.double().abs() @ reference.int4_matmul(identity, *quantised).abs()
    close(got, reference.int4_matmul(x.double(), *quantised), magnitude)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_int4_with_scales_and_zero_points_as_files_have_them(kind: torch.dtype, generator: torch.Generator) -> None:
    device = generator.device
    x = torch.randn(17, 96, generator=generator, device=device).to(torch.bfloat16)
    packed, scales, zeros = quantize_int4(torch.randn(70, 96, generator=generator, device=device), 32)
    scales, zeros = scales.to(kind), zeros.to(torch.uint8)
    got = int4_matmul(x, packed, scales, zeros)
    identity = torch.eye(96, dtype=torch.float64, device=device)
    magnitude = x.double().abs() @ reference.int4_matmul(identity, packed, scales, zeros).abs()
    close(got, reference.int4_matmul(x.double(), packed, scales, zeros), magnitude)


@dtypes
@pytest.mark.parametrize("rank", [4, 16, 40])
def test_lora_by_segments(rank: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Segments shorter and longer than a tile, an empty one, and two without an adapter."""
    device, inputs, outputs = generator.device, 70, 90
    lengths, chosen = [1, 33, 0, 16, 5, 2], [2, -1, 0, 0, 1, -1]
    starts = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    adapters = torch.tensor(chosen, device=device).int()
    rows = sum(lengths)
    x = torch.randn(rows, inputs, generator=generator, device=device).to(dtype)
    down = torch.randn(3, rank, inputs, generator=generator, device=device).to(dtype)
    up = torch.randn(3, outputs, rank, generator=generator, device=device).to(dtype)
    scales = torch.tensor([0.5, 2.0, 1.0], device=device)
    with guarded_outputs():
        shrunk = lora_shrink(x, down, starts, adapters)
    exact = reference.lora_shrink(x.double(), down, starts, adapters)
    close(shrunk, exact, reference.lora_shrink(x.double().abs(), down.abs(), starts, adapters))

    buffer = torch.randn(rows, outputs + 5, generator=generator, device=device).to(dtype)
    out, before = buffer[:, :outputs], buffer.clone()
    narrow = shrunk.to(dtype)  # as the kernel reads it
    expected = before[:, :outputs].double()
    reference.lora_expand(narrow, up, scales, starts, adapters, expected)
    size = before[:, :outputs].double().abs()
    reference.lora_expand(narrow.abs(), up.abs(), scales, starts, adapters, size)
    lora_expand(shrunk, up, scales, starts, adapters, out)
    close(out, expected, size)
    assert torch.equal(buffer[:, outputs:], before[:, outputs:])
    assert torch.equal(out[1:34], before[1:34, :outputs])


@dtypes
def test_a_row_gets_the_same_numbers_in_any_batch(dtype: torch.dtype, generator: torch.Generator) -> None:
    x = torch.randn(20, 64, generator=generator, device=generator.device).to(dtype)
    weight, scales = quantize_weight(torch.randn(40, 64, generator=generator, device=generator.device), torch.int8)
    assert torch.equal(weight_only_matmul(x, weight, scales)[7:8], weight_only_matmul(x[7:8], weight, scales))


@dtypes
def test_adapters_of_several_ranks_in_one_batch(dtype: torch.dtype, generator: torch.Generator) -> None:
    """A matrix that an adapter leaves as it is, rows without an adapter, and each row alike in any batch."""
    device, inputs, widths = generator.device, 70, (33, 64)

    def draw_adapter(rank: int, *, whole: bool) -> LoraMatrices:
        matrices = []
        for width in widths:
            down = torch.randn(rank, inputs, generator=generator, device=device).to(dtype)
            up = torch.randn(width, rank, generator=generator, device=device).to(dtype).T
            matrices.append(LoraMatrix(down, up, 0.5 + rank))
        return LoraMatrices([None, matrices[0], matrices[1] if whole else None])

    segments = [(draw_adapter(8, whole=True), 3), (None, 2), (draw_adapter(16, whole=False), 20)]
    batch = LoraBatch(segments)
    x = torch.randn(25, inputs, generator=generator, device=device).to(dtype)
    before = torch.randn(25, sum(widths), generator=generator, device=device).to(dtype)
    got, expected, size = before.clone(), before.double(), before.double().abs()
    with guarded_outputs():
        add_lora(got, x, batch, 1, widths)
    reference.add_lora(expected, x.double(), batch, 1, widths)
    magnitudes = [
        None
        if adapter is None
        else LoraMatrices([m and LoraMatrix(m.down.abs(), m.up.abs(), m.scale) for m in adapter.matrices])
        for adapter, _ in segments
    ]
    counts = [count for _, count in segments]
    reference.add_lora(size, x.double().abs(), LoraBatch(list(zip(magnitudes, counts, strict=True))), 1, widths)
    # The rows of the second product are narrow, too.
    close(got, expected, size * (1 + ROUNDING[dtype] * 2**20))
    assert torch.equal(got[3:5], before[3:5])
    alone = before[7:8].clone()
    add_lora(alone, x[7:8], LoraBatch([(segments[2][0], 1)]), 1, widths)
    assert torch.equal(alone[0], got[7])
