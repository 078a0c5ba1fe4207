"""Cosines and sines of the rotary position embedding (RoFormer, arXiv 2104.09864), rotate-half order."""

import torch

from paternoster_engine.model.rope_scaling import RopeScaling


def rotary_table(
    head_dim: int, length: int, theta: float, device: torch.device, scaling: RopeScaling | None = None
) -> torch.Tensor:
    """``[length, head_dim]`` float32: the cosines of each position's ``head_dim / 2`` angles, then their sines."""
    frequencies = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if scaling is not None:
        frequencies = scaling.stretch(frequencies, theta)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    return (table if scaling is None else table * scaling.amplitude).to(device)
