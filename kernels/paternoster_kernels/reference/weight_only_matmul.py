"""Products with weights stored as int8 or fp8, one scale an output; the inputs stay as they are."""

import math

import torch

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}

ROWS = 256
"""In float32 at once: a whole matrix would be four times what comes of it."""


def quantize_weight(weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight [out, in]`` as ``dtype`` (int8 or fp8 e4m3) and float32 scales ``[out]``; raises ``ValueError``."""
    if dtype not in LIMITS:
        raise ValueError(f"dtype is {dtype}: must be one of {', '.join(map(str, LIMITS))}")
    scales = torch.linalg.vector_norm(weight, math.inf, 1).float() / LIMITS[dtype]
    divisors = torch.where(scales == 0, 1, scales)[:, None]
    quantized = torch.empty_like(weight, dtype=dtype)
    for rows, divisor, out in zip(weight.split(ROWS), divisors.split(ROWS), quantized.split(ROWS), strict=True):
        scaled = rows.float() / divisor
        out.copy_(scaled.round() if dtype == torch.int8 else scaled)
    return quantized, scales


def weight_only_matmul(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``x @ (scales * weight).T`` for ``x [rows, in]``, ``weight [out, in]``, ``scales [out]``; ``[rows, out]``."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) @ weight.to(wide).T * scales.to(wide)).to(x.dtype)
