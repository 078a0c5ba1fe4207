"""The settings of rows as the ``sample`` operation reads them."""

from collections.abc import Sequence

import torch

from paternoster_engine.core.matching import SamplerRow
from paternoster_kernels.upload import upload_tensor


def make_columns(requests: Sequence[SamplerRow], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Temperature, top-k, top-p, min-p, seed and position of each row, ``[rows]`` on ``device``."""
    params = [request.params for request in requests]
    return (
        make_column([p.temperature for p in params], torch.float32, device),
        make_column([p.top_k for p in params], torch.int32, device),
        make_column([p.top_p for p in params], torch.float32, device),
        make_column([p.min_p for p in params], torch.float32, device),
        make_column([to_signed64(request.seed) for request in requests], torch.int64, device),
        make_column([request.num_tokens for request in requests], torch.int64, device),
    )


def make_column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return upload_tensor(torch.tensor(values, dtype=dtype), device)


def to_signed64(seed: int) -> int:
    """Read the 64 bits as a signed number, which is what the kernels read."""
    seed &= 0xFFFF_FFFF_FFFF_FFFF
    return seed - (1 << 64) if seed >> 63 else seed
