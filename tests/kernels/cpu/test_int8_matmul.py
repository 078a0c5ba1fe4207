"""Products with int8 weights: exactly what the reference says, and near to what the weight was made from."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import reference
from paternoster_kernels.cpu import int8_matmul as cpu
from paternoster_kernels.reference.quantized_matmul import quantize_rows, quantize_weight

native = pytest.mark.usefixtures("instructions")


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


@native
@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 70),
    outputs=st.integers(1, 6),
    inputs=st.integers(1, 5),
    threads=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_native_is_exactly_the_reference(rows: int, outputs: int, inputs: int, threads: int, seed: int) -> None:
    x, weight = _normal(rows, 64 * inputs, seed=seed) * 3, _normal(32 * outputs, 64 * inputs, seed=seed + 1)
    x[0] = 0
    quantized, scales = quantize_weight(weight, torch.int8)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        got = cpu.int8_matmul(x, cpu.pack_int8_weight(quantized), scales)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(got, reference.int8_matmul(x, quantized, scales))


@native
def test_the_largest_sums_do_not_overflow() -> None:
    x, weight = torch.full((1, 1536), -1.0, dtype=torch.bfloat16), torch.ones(32, 1536)
    quantized, scales = quantize_weight(weight, torch.int8)
    got = cpu.int8_matmul(x, cpu.pack_int8_weight(quantized), scales)
    torch.testing.assert_close(got.float(), torch.full((1, 32), -1536.0), rtol=2.0**-8, atol=0)


@native
def test_a_row_does_not_depend_on_those_beside_it() -> None:
    x, weight = _normal(40, 128), _normal(64, 128, seed=1)
    quantized, scales = quantize_weight(weight, torch.int8)
    packed = cpu.pack_int8_weight(quantized)
    together = cpu.int8_matmul(x, packed, scales)
    alone = torch.cat([cpu.int8_matmul(x[i : i + 1], packed, scales) for i in range(len(x))])
    assert torch.equal(together, alone)


@native
@pytest.mark.parametrize("shape", [(33, 64), (32, 65)], ids=str)
def test_weights_without_whole_tiles_go_to_the_reference(shape: tuple[int, int]) -> None:
    x, weight = _normal(3, shape[1]), _normal(*shape, seed=1)
    quantized, scales = quantize_weight(weight, torch.int8)
    packed = cpu.pack_int8_weight(quantized)
    assert torch.equal(packed, quantized)
    assert torch.equal(cpu.int8_matmul(x, packed, scales), reference.int8_matmul(x, quantized, scales))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_reference_is_near_the_product(dtype: torch.dtype) -> None:
    """Each of the two roundings is off by at most half of the largest number of its row over 127."""
    x, weight = _normal(5, 256).to(dtype), _normal(48, 256, seed=1)
    quantized, scales = quantize_weight(weight, torch.int8)
    exact = x.double() @ weight.double().T
    x_most, w_most = x.double().abs().amax(1, keepdim=True), weight.double().abs().amax(1)
    bound = 256 * (x_most * w_most / 127 + x_most * w_most / (4 * 127**2))
    error = (reference.int8_matmul(x, quantized, scales).double() - exact).abs()
    assert bool((error <= bound + 2.0**-8 * exact.abs()).all())
    assert float(error.pow(2).mean().sqrt()) < 0.02 * float(exact.pow(2).mean().sqrt())


def test_rows_are_scaled_to_the_whole_range_and_zeros_stay() -> None:
    quantized, scales = quantize_rows(torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.0, 0.0]]))
    assert quantized.tolist() == [[32, -127, 64], [0, 0, 0]]
    assert scales.tolist() == pytest.approx([2 / 127, 0.0])
