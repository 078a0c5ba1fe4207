"""Products with packed bfloat16 weights: near to exact, each row by itself, and gated as if it were done after."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import reference
from paternoster_kernels.cpu import elementwise
from paternoster_kernels.cpu import matmul as cpu
from paternoster_kernels.cpu.library import load_library

native = pytest.mark.usefixtures("instructions")
BF16 = torch.bfloat16


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def _near(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Off by the rounding of the result and of float32 sums, which grows with what is summed."""
    exact = x.double() @ weight.double().T
    summed = x.double().abs() @ weight.double().abs().T
    assert got.dtype == BF16
    assert bool(((got.double() - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-20 * summed).all())


@native
@settings(max_examples=20, deadline=None)
@given(
    rows=st.one_of(st.integers(1, 70), st.sampled_from([255, 257, 300, 511, 513, 540])),
    outputs=st.integers(1, 6),
    inputs=st.one_of(st.integers(1, 5), st.sampled_from([9, 10, 18, 19])),
    threads=st.integers(1, 2),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_product(rows: int, outputs: int, inputs: int, threads: int, biased: bool, seed: int) -> None:
    x, weight = _normal(rows, 32 * inputs, seed=seed), _normal(32 * outputs, 32 * inputs, seed=seed + 1)
    bias = _normal(32 * outputs, seed=seed + 2) if biased else None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        plain, got = (cpu.packed_matmul(x, cpu.pack_weight(weight), added) for added in (None, bias))
        packed = cpu.pack_weight(weight, gated=True)
        by_silu, by_gelu = (cpu.packed_gated_matmul(x, packed, bias, gelu=gelu) for gelu in (False, True))
    finally:
        torch.set_num_threads(before)
    _near(plain, x, weight)
    assert torch.equal(got, plain if bias is None else plain + bias)
    assert torch.equal(by_silu, elementwise.silu_mul(got))
    assert torch.equal(by_gelu, elementwise.gelu_mul(got))


@native
@pytest.mark.parametrize("rows", [1, 17, 40, 540])
def test_a_row_does_not_depend_on_those_beside_it(rows: int) -> None:
    x, packed = _normal(rows, 320), cpu.pack_weight(_normal(64, 320, seed=1))
    together = cpu.packed_matmul(x, packed)
    alone = torch.cat([cpu.packed_matmul(x[i : i + 1], packed) for i in range(rows)])
    assert torch.equal(together, alone)


@native
def test_nothing_is_read_or_written_beyond_the_rows() -> None:
    """What lies after the input is no number; what lies after the output stays as it is."""
    x, weight = _normal(5, 64), _normal(32, 64, seed=1)
    surrounded = torch.cat((x, torch.full((27, 64), float("nan"), dtype=BF16)))[:5]
    assert torch.equal(
        cpu.packed_matmul(surrounded, cpu.pack_weight(weight)), cpu.packed_matmul(x, cpu.pack_weight(weight))
    )
    guarded = torch.full((32, 32), 7.0, dtype=BF16)
    load_library().packed_matmul(
        guarded.data_ptr(), x.data_ptr(), cpu.pack_weight(weight).data_ptr(), None, None, 5, 32, 64, 0, 2
    )
    _near(guarded[:5], x, weight)
    assert bool((guarded[5:] == 7.0).all())


@native
def test_rows_that_do_not_lie_in_a_piece() -> None:
    x, weight = _normal(6, 128)[:, ::2], _normal(32, 64, seed=1)
    _near(cpu.packed_matmul(x, cpu.pack_weight(weight)), x, weight)


@native
@pytest.mark.parametrize(
    "weight", [_normal(33, 64), _normal(32, 40), _normal(32, 64).float()], ids=lambda w: str(w.shape)
)
def test_weights_without_whole_tiles_go_to_the_reference(weight: torch.Tensor) -> None:
    x, packed = _normal(3, weight.shape[1]).to(weight.dtype), cpu.pack_weight(weight)
    assert packed is weight
    assert torch.equal(cpu.packed_matmul(x, packed), reference.packed_matmul(x, weight))


def test_the_reference_is_the_product_and_its_gate() -> None:
    x, weight = torch.randn(3, 8), torch.randn(6, 8)
    bias = torch.randn(6)
    product = x @ weight.T + bias
    packed = reference.pack_weight(weight, gated=True)
    torch.testing.assert_close(reference.packed_matmul(x, packed, bias), product)
    expected = torch.nn.functional.silu(product[:, :3]) * product[:, 3:]
    torch.testing.assert_close(reference.packed_gated_matmul(x, packed, bias), expected)
    expected = torch.nn.functional.gelu(product[:, :3], approximate="tanh") * product[:, 3:]
    torch.testing.assert_close(reference.packed_gated_matmul(x, packed, bias, gelu=True), expected)
