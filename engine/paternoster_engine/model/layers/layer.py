"""One layer of a decoder."""

from dataclasses import dataclass

import torch

from paternoster_engine.model.layers.attention import Attention
from paternoster_engine.model.layers.experts import MixtureOfExperts
from paternoster_engine.model.layers.mlp import Mlp


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Norms are None where the model has none there."""

    group: int
    """Whose plan its attention goes by."""
    place: int
    """In the group: whose tensor of the KV cache is its."""
    attention_norm: torch.Tensor | None
    attention: Attention
    attention_post_norm: torch.Tensor | None
    mlp_norm: torch.Tensor | None
    mlp: Mlp | MixtureOfExperts
    mlp_post_norm: torch.Tensor | None
