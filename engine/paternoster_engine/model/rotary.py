"""Cosines and sines of the rotary position embedding (RoFormer, arXiv 2104.09864), rotate-half order."""

import torch


class RotaryTable:
    """Angles for every position up to ``length``, computed once in float32."""

    def __init__(self, head_dim: int, length: int, theta: float, dtype: torch.dtype, device: torch.device) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        angles = torch.outer(torch.arange(length, dtype=torch.float32), theta**-exponents)
        cos, sin = angles.cos(), angles.sin()
        # The sine of the first half is negated, so that a plain swap of the halves completes the rotation.
        self._cos = torch.cat((cos, cos), -1).unsqueeze(1).to(device, dtype)
        self._sin = torch.cat((-sin, sin), -1).unsqueeze(1).to(device, dtype)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines ``[tokens, 1, head_dim]`` at ``positions [tokens]``."""
        return self._cos[positions], self._sin[positions]
