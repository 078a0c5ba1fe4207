"""Matrices of few bits taken apart for a GPU's products; the products themselves are in tests/kernels/device."""

import pytest
import torch
from tests.kernels.cpu.random_blocks import random_blocks

from paternoster_engine.model.layers.device_linear import device_linear
from paternoster_kernels.blocks import Rows
from paternoster_kernels.reference.blocks import dequantize_blocks

CPU = torch.device("cpu")
DRAW = torch.Generator().manual_seed(1)


@pytest.mark.parametrize("name", ["Q4_0", "INT4_F16", "INT4_BF16"])
def test_the_product_of_matrices_below_each_other(name: str) -> None:
    matrices = [random_blocks(name, rows, 96, seed=rows) for rows in (520, 3)]
    x, bias = torch.randn(5, 96, generator=DRAW), torch.randn(523, generator=DRAW)
    linear = device_linear(list[Rows](matrices), CPU, None, bias)
    assert linear is not None
    assert (linear.out_features, linear.in_features) == (523, 96)
    weight = torch.cat([dequantize_blocks(matrix.format, matrix.data) for matrix in matrices])
    torch.testing.assert_close(linear(x), x @ weight.T + bias, rtol=1e-4, atol=1e-4)


def test_fp8_with_a_scale_an_output_alone() -> None:
    matrix = random_blocks("FP8", 8, 64, seed=1)
    assert device_linear([matrix], CPU, None, None) is None
    matrix.data[:, 36:40] = matrix.data[:, :4]
    linear, x = device_linear([matrix], CPU, None, None), torch.randn(3, 64, generator=DRAW)
    assert linear is not None
    torch.testing.assert_close(linear(x), x @ dequantize_blocks(matrix.format, matrix.data).T, rtol=1e-4, atol=1e-3)


def test_other_formats_and_several_at_once_have_no_product() -> None:
    assert device_linear([random_blocks("Q4_K", 4, 256, seed=1)], CPU, None, None) is None
    both = [random_blocks(name, 4, 64, seed=1) for name in ("Q4_0", "INT4_F16")]
    assert device_linear(list[Rows](both), CPU, None, None) is None
