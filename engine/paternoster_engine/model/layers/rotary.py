"""Rotary position embedding (arXiv 2104.09864): the angles."""

import torch

from paternoster_engine.model.config import Rope


def rotary_table(rope: Rope, head_dim: int, length: int, device: torch.device) -> torch.Tensor:
    """``[length, rotated]`` float32: the cosines of each position's ``rotated / 2`` angles, then their sines."""
    dim = rope.dim or head_dim
    frequencies = rope.theta ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if rope.scaling is not None:
        frequencies = rope.scaling.scale_frequencies(frequencies, rope.theta)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    return (table if rope.scaling is None else table * rope.scaling.amplitude).to(device)
