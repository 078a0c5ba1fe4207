"""Products with weights stored as int8 or fp8, one scale an output; the inputs stay as they are."""

import torch

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def quantize_weight(weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight [out, in]`` as ``dtype`` (int8 or fp8 e4m3) and float32 scales ``[out]``; raises ``ValueError``."""
    if dtype not in LIMITS:
        raise ValueError(f"dtype is {dtype}: must be one of {', '.join(map(str, LIMITS))}")
    scales = weight.abs().amax(1).float() / LIMITS[dtype]
    scaled = weight.float() / torch.where(scales == 0, 1, scales)[:, None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def weight_only_matmul(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``x @ (scales * weight).T`` for ``x [rows, in]``, ``weight [out, in]``, ``scales [out]``; ``[rows, out]``."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) @ weight.to(wide).T * scales.to(wide)).to(x.dtype)
