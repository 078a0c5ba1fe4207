"""Which part of a model each rank holds. Pure.

A layer's first matrices (queries, keys, values; gate and up) are split by outputs, its second ones (attention output;
down) by inputs, so that a rank needs nothing of the others between the two, and one sum behind them completes both.
Embedding and output projection are split by the vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import UnsupportedModelError

BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
BY_INPUTS = ("o_proj", "down_proj")
BY_VOCABULARY = ("embed_tokens", "lm_head")

Load = Callable[[str], torch.Tensor]


def possible_sizes(config: ModelConfig) -> list[int]:
    """Numbers of ranks that the model can be split over, whole heads and equal parts for each."""
    # Key heads are not copied to several ranks: a copy would take the memory of the KV pool that more ranks bring.
    common = math.gcd(config.num_heads, config.num_kv_heads, config.intermediate_size)
    return [size for size in range(1, common + 1) if common % size == 0]


def shard_config(config: ModelConfig, size: int) -> ModelConfig:
    """The model as one of ``size`` ranks sees it; the vocabulary stays whole. Raises :class:`UnsupportedModelError`."""
    possible = possible_sizes(config)
    if size not in possible:
        raise UnsupportedModelError(
            f"tensor_parallel_size is {size}: must be one of {', '.join(map(str, possible))} for {config.name}, as it "
            f"must divide {config.num_heads} query heads, {config.num_kv_heads} key heads and "
            f"{config.intermediate_size} columns of the MLP"
        )
    return replace(
        config,
        num_heads=config.num_heads // size,
        num_kv_heads=config.num_kv_heads // size,
        intermediate_size=config.intermediate_size // size,
    )


def shard(name: str, tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Rank ``rank``'s part of the tensor with the Hugging Face name ``name``, in memory of its own.

    A vocabulary that ``size`` does not divide ends with rows of zeros on the last ranks.
    """
    layer = name.removesuffix(".weight").rpartition(".")[2]
    if size == 1 or layer not in (*BY_OUTPUTS, *BY_INPUTS, *BY_VOCABULARY):
        return tensor
    dim = 1 if layer in BY_INPUTS else 0
    length = -(-tensor.shape[dim] // size)
    first = min(rank * length, tensor.shape[dim])
    part = tensor.narrow(dim, first, min(length, tensor.shape[dim] - first))
    if part.shape[dim] == length:
        # A copy, so that the whole is let go.
        return part.clone(memory_format=torch.contiguous_format)
    return torch.cat((part, part.new_zeros(length - len(part), *part.shape[1:])))


def shard_loader(load: Load, rank: int, size: int) -> Load:
    """``load``, which gives tensors by name, made to give this rank's parts."""

    def load_part(name: str) -> torch.Tensor:
        return shard(name, load(name), rank, size)

    return load_part
