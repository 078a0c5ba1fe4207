"""Products of rows made int8 on the way with int8 weights (W8A8): exact sums, one scale a row and one an output."""

import torch


def pack_int8_weight(weight: torch.Tensor) -> torch.Tensor:
    """``weight [out, in]`` int8 in the order in which :func:`int8_matmul` reads it; here as it is."""
    return weight


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``x [rows, in]`` as int8 and float32 scales ``[rows]``, the largest of a row being 127."""
    x = x.float()
    scales = x.abs().amax(1) / 127.0
    inverse = torch.where(scales > 0, 1.0 / scales, 0.0)
    return (x * inverse[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def int8_matmul(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``x @ (scales * weight).T`` for ``x [rows, in]``, ``scales [out]``; ``[rows, out]`` as ``x``.

    ``packed``: the weight from :func:`pack_int8_weight`; :func:`.weight_only_matmul.quantize_weight` makes both.
    """
    quantized, row_scales = quantize_rows(x)
    sums = torch._int_mm(quantized, packed.T) if x.device.type == "cpu" else quantized.double() @ packed.double().T
    return (sums.float() * row_scales[:, None] * scales).to(x.dtype)
