"""Norm, rotary embedding and gate against their formulas in float64."""

import pytest
import torch

from paternoster_kernels import pick_kernel

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    torch.manual_seed(0)
    return request.param


def _close(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_rms_norm(dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 24, dtype=dtype), torch.randn(24, dtype=dtype)
    wide = x.double()
    expected = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    _close(pick_kernel("rms_norm", CPU)(x, weight, 1e-5), expected, dtype)


def test_rms_norm_adds_to_the_residual_first(dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(5, 24, dtype=dtype), torch.randn(5, 24, dtype=dtype), torch.ones(24, dtype=dtype)
    total = x + residual
    got = pick_kernel("rms_norm", CPU)(x, weight, 1e-5, residual)
    assert torch.equal(residual, total)
    assert torch.equal(got, pick_kernel("rms_norm", CPU)(total, weight, 1e-5))


def test_silu_mul(dtype: torch.dtype) -> None:
    gate_up = torch.randn(5, 32, dtype=dtype)
    gate, up = gate_up.double().chunk(2, -1)
    _close(pick_kernel("silu_mul", CPU)(gate_up), gate / (1 + (-gate).exp()) * up, dtype)


def test_rope_rotates_pairs_across_the_halves(dtype: torch.dtype) -> None:
    tokens, heads, half = 4, 3, 8
    x = torch.randn(tokens, heads, 2 * half, dtype=dtype)
    angles = torch.rand(tokens, 1, half) * 6
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.exp(1j * angles.double())
    cos, sin = angles.cos(), angles.sin()
    rope = pick_kernel("rope", CPU)
    rope(x, torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))
    _close(x, torch.cat((pairs.real, pairs.imag), -1), dtype)


def test_rope_changes_a_slice_in_place() -> None:
    heads = torch.randn(2, 5, 4)
    before = heads.clone()
    cos, sin = torch.zeros(2, 1, 4), torch.tensor([-1.0, -1.0, 1.0, 1.0]).expand(2, 1, 4)
    pick_kernel("rope", CPU)(heads[:, :3], cos, sin)
    assert torch.equal(heads[:, 3:], before[:, 3:])
    assert torch.equal(heads[:, :3, :2], -before[:, :3, 2:])
