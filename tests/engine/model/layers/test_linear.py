"""One matrix, several ways to hold it."""

import pytest
import torch
from torch.nn import functional

from paternoster_engine.model.layers import linear as linear_module
from paternoster_engine.model.layers.int8_linear import Int8Linear
from paternoster_engine.model.layers.invariant_linear import InvariantLinear
from paternoster_engine.model.layers.linear import Linear
from paternoster_kernels import reference


@pytest.mark.parametrize("product", ["native", "onednn", "torch"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", [Linear, InvariantLinear, Int8Linear])
@pytest.mark.parametrize("rows", [1, 33, 70])
def test_with_and_without_a_gate(
    kind: type[Linear], rows: int, dtype: torch.dtype, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if product != "native":
        monkeypatch.setattr(linear_module, "pick_kernel", lambda op, device: getattr(reference, op))
    if product == "torch":
        monkeypatch.setattr(linear_module, "has_onednn_product", lambda weight: False)
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(128, 64, generator=generator).to(dtype)
    x = torch.randn(rows, 64, generator=generator).to(dtype)
    plain, gated = kind(weight), kind(weight, reference.silu_mul)
    assert (plain.in_features, plain.out_features) == (gated.in_features, gated.out_features) == (64, 128)
    exact = x.double() @ weight.double().T
    bound = 0.05 if kind is Int8Linear else 0.01
    for got, want in (
        (plain(x), exact),
        (gated(x), functional.silu(exact[:, :64]) * exact[:, 64:]),
    ):
        assert got.dtype == dtype
        assert got.shape == want.shape
        error = (got.double() - want).pow(2).mean().sqrt()
        assert float(error) < bound * float(want.pow(2).mean().sqrt())
