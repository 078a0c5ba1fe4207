"""Cosines and sines of the rotary position embedding (RoFormer, arXiv 2104.09864), rotate-half order."""

import torch


def rotary_table(head_dim: int, length: int, theta: float, device: torch.device) -> torch.Tensor:
    """``[length, head_dim]`` float32: the cosines of each position's ``head_dim / 2`` angles, then their sines."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), theta**-exponents)
    return torch.cat((angles.cos(), angles.sin()), -1).to(device)
