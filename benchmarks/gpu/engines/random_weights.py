"""A model's weights drawn at random: its speed depends on their shapes alone."""

import math
from collections.abc import Callable

import torch

from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import ModelConfig


def random_weights(
    config: ModelConfig, dtype: torch.dtype, generator: torch.Generator, spread: float = 1.0
) -> Callable[[str], torch.Tensor]:
    """Weights by name, made on the generator's device; logits vary by about ``spread``."""

    shapes = dict(expected_shapes(config))

    def tensor(name: str) -> torch.Tensor:
        shape = shapes[name]
        weight = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
        if len(shape) == 1:
            return weight.mul_(0.1).add_(1.0)
        return weight.mul_((spread if name == "lm_head.weight" else 1.0) / math.sqrt(shape[1]))

    return tensor
