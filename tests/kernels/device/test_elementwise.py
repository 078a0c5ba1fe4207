"""Norms and gates against their formulas in float64, on rows of any width."""

import pytest
import torch
from tests.kernels.device.guard_bands import guarded_outputs

from paternoster_kernels import reference
from paternoster_kernels.triton.gated_mul import gelu_mul, silu_mul
from paternoster_kernels.triton.head_norm import head_norm
from paternoster_kernels.triton.rms_norm import rms_norm

ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 1.1 * 2.0**-8, torch.float16: 1.1 * 2.0**-11}
dtypes = pytest.mark.parametrize("dtype", list(ROUNDING), ids=["fp32", "bf16", "fp16"])


def rows(count: int, width: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Rows that lie three elements apart, with NaN between them."""
    buffer = torch.full((count, width + 3), float("nan"), dtype=dtype, device=generator.device)
    buffer[:, :width] = torch.randn(count, width, generator=generator, device=generator.device)
    return buffer[:, :width]


@dtypes
@pytest.mark.parametrize("width", [1, 64, 576, 1023, 2049])
@pytest.mark.parametrize("add", [False, True], ids=["plain", "residual"])
def test_rms_norm(width: int, add: bool, dtype: torch.dtype, generator: torch.Generator) -> None:
    x, weight = rows(5, width, dtype, generator), rows(1, width, dtype, generator)[0]
    residual = rows(5, width, dtype, generator) if add else None
    total = x + residual if residual is not None else x.clone()
    with guarded_outputs():
        got = rms_norm(x, weight, 1e-5, residual)
    expected = reference.rms_norm(total.double(), weight.double(), 1e-5)
    torch.testing.assert_close(got.double(), expected, rtol=ROUNDING[dtype], atol=1e-6)
    if residual is not None:
        assert torch.equal(residual, total)


@dtypes
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(1, 1, 8), (3, 1, 64), (7, 1, 96), (16, 8, 128)])
def test_head_norm(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    qkv = rows(5, (heads + 2 * kv_heads) * head_dim, dtype, generator)
    weights = [rows(1, head_dim, dtype, generator)[0] for _ in "qk"]
    whole = qkv._base
    assert whole is not None
    exact, values, between = qkv.double(), qkv[:, -kv_heads * head_dim :].clone(), whole[:, -3:].clone()
    head_norm(qkv, *weights, kv_heads, 1e-6)
    reference.head_norm(exact, *(weight.double() for weight in weights), kv_heads, 1e-6)
    torch.testing.assert_close(qkv.double(), exact, rtol=ROUNDING[dtype], atol=1e-6)
    assert torch.equal(qkv[:, -kv_heads * head_dim :], values)
    torch.testing.assert_close(whole[:, -3:], between, rtol=0, atol=0, equal_nan=True)


@dtypes
@pytest.mark.parametrize("width", [1, 1023, 1024, 1025, 1536])
@pytest.mark.parametrize("name", ["silu_mul", "gelu_mul"])
def test_gates(name: str, width: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    gate_up = 3 * rows(4, 2 * width, dtype, generator)
    gate_up[0, : width // 2] = 90.0
    gate_up[1, : width // 2] = -90.0
    with guarded_outputs():
        got = {"silu_mul": silu_mul, "gelu_mul": gelu_mul}[name](gate_up)
    expected = getattr(reference, name)(gate_up.double())
    # The exponential's argument is rounded too: an error that grows with it.
    torch.testing.assert_close(got.double(), expected, rtol=ROUNDING[dtype] + 5e-6, atol=1e-6)


@dtypes
def test_a_row_gets_the_same_numbers_in_any_batch(dtype: torch.dtype, generator: torch.Generator) -> None:
    x, weight = rows(6, 576, dtype, generator), rows(1, 576, dtype, generator)[0]
    assert torch.equal(rms_norm(x, weight, 1e-5)[2:3], rms_norm(x[2:3], weight, 1e-5))
    assert torch.equal(silu_mul(x)[4:], silu_mul(x[4:]))
    together, alone = x.clone(), x[3:4].clone()
    for heads in (together, alone):
        head_norm(heads, weight[:64], weight[64:128], 2, 1e-6)
    assert torch.equal(together[3:4], alone)
