"""Products by weights of few bits: int8 or fp8, int8 by rows made int8 (W8A8), four bits in groups of inputs."""

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

    ``packed``: the weight from :func:`pack_int8_weight`; :func:`quantize_weight` makes both. Sums are exact.
    """
    quantized, row_scales = quantize_rows(x)
    sums = torch._int_mm(quantized, packed.T) if x.device.type == "cpu" else quantized.double() @ packed.double().T
    return (sums.float() * row_scales[:, None] * scales).to(x.dtype)


def quantize_int4(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``weight [out, in]`` as packed uint8 ``[out, in / 2]``, and scales and zero points ``[out, in / group]`` float32.

    In each group of ``group`` inputs, byte ``j`` holds input ``j`` in its low half and ``j + group / 2`` in its high
    half. A weight is ``scale * (number - zero)``. Raises ``ValueError`` when ``group`` is no power of two of at
    least 32 or does not divide the inputs.
    """
    if group < 32 or group & (group - 1) or weight.shape[1] % group:
        raise ValueError(
            f"group is {group} for {weight.shape[1]} inputs: must be a power of two >= 32 that divides them"
        )
    grouped = weight.float().unflatten(1, (-1, group))
    low, high = grouped.amin(-1, keepdim=True).clamp(max=0), grouped.amax(-1, keepdim=True).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=torch.finfo(torch.float32).tiny)
    zeros = (-low / scales).round()
    numbers = (grouped / scales + zeros).round().clamp(0, 15).to(torch.uint8)
    packed = numbers[..., : group // 2] | numbers[..., group // 2 :] << 4
    return packed.flatten(1), scales.squeeze(-1), zeros.squeeze(-1)


def int4_matmul(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T`` for ``x [rows, in]`` and a weight from :func:`quantize_int4`; returns ``[rows, out]``.

    Scales may be of any float's type, and zero points whole numbers of eight bits.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    halves = packed.unflatten(1, (scales.shape[1], -1))
    numbers = torch.cat((halves & 15, halves >> 4), -1).to(wide)
    weight = (numbers - zeros.to(wide)[..., None]) * scales.to(wide)[..., None]
    return (x.to(wide) @ weight.flatten(1).T).to(x.dtype)
