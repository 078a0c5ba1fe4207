"""Products with weights of four bits, in groups of inputs that share a scale and a zero point."""

import torch


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
