"""Random numbers without state: a pure function of (seed, position, token id).

So a token depends neither on the row it sits in, nor on the batch, nor on how often the request was preempted.
"""

from collections.abc import Sequence

import torch

_MASK64 = (1 << 64) - 1


def _splitmix64(x: int) -> int:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def _to_signed32(x: int) -> int:
    x &= 0xFFFFFFFF
    return x - (1 << 32) if x >> 31 else x


def row_keys(seeds: Sequence[int], positions: Sequence[int], device: torch.device) -> torch.Tensor:
    """Two 32-bit words ``[rows, 2]`` (int32) for each (seed, position)."""
    words = [
        _splitmix64(_splitmix64(seed & _MASK64) ^ position) for seed, position in zip(seeds, positions, strict=True)
    ]
    return torch.tensor(
        [[_to_signed32(word), _to_signed32(word >> 32)] for word in words], dtype=torch.int32, device=device
    )


def gumbel_noise(keys: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float32, for int32 ``token_ids [rows or 1, columns]`` under ``keys [rows, 2]``.

    A 32-bit mixing function (xor-shift-multiply, two rounds) over token id and both key words.
    """
    first, second = keys[:, :1], keys[:, 1:]
    x = token_ids * _to_signed32(0x9E3779B1) + first
    x ^= (x >> 16) & 0xFFFF
    x *= _to_signed32(0x7FEB352D)
    x ^= second
    x ^= (x >> 15) & 0x1FFFF
    x *= _to_signed32(0x846CA68B)
    x ^= (x >> 16) & 0xFFFF
    # Uniform in (0, 1) with its finest steps near 0: -log1p(-u) is exponential, and small ones win.
    uniform = (x & 0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31).clamp_(max=1.0 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()
