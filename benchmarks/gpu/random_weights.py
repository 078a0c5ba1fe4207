"""A model's weights drawn at random: its speed depends on their shapes alone."""

import math
from collections.abc import Callable

import torch

from paternoster_engine.model.config import ModelConfig


def weight_shape(name: str, config: ModelConfig) -> tuple[int, ...]:
    """Of the tensor with this Hugging Face name; norms are vectors."""
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, wide = config.hidden_size, config.intermediate_size
    matrices = {
        "embed_tokens": (config.vocab_size, hidden),
        "lm_head": (config.vocab_size, hidden),
        "q_proj": (heads, hidden),
        "k_proj": (kv_heads, hidden),
        "v_proj": (kv_heads, hidden),
        "o_proj": (hidden, heads),
        "gate_proj": (wide, hidden),
        "up_proj": (wide, hidden),
        "down_proj": (hidden, wide),
        "q_norm": (config.head_dim,),
        "k_norm": (config.head_dim,),
    }
    return matrices.get(name.split(".")[-2], (hidden,))


def random_weights(
    config: ModelConfig, dtype: torch.dtype, generator: torch.Generator, spread: float = 1.0
) -> Callable[[str], torch.Tensor]:
    """Weights by name, made on the generator's device; logits vary by about ``spread``."""

    def tensor(name: str) -> torch.Tensor:
        shape = weight_shape(name, config)
        weight = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
        if len(shape) == 1:
            return weight.mul_(0.1).add_(1.0)
        return weight.mul_((spread if name == "lm_head.weight" else 1.0) / math.sqrt(shape[1]))

    return tensor
