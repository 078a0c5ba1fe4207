"""Tensor-parallel sharding: which part of a model each rank holds. Pure.

A layer's first matrices (queries, keys, values; gate and up) are split by outputs, its second ones (attention output;
down) by inputs, so that a rank needs nothing of the others between the two, and one sum behind them completes both.
Embedding and output projection are split by the vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from paternoster_engine.model.config import Layer, ModelConfig
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.weights.stored import LazyTensor, TensorSlice

BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "sinks", "gate_proj", "up_proj")
BY_INPUTS = ("o_proj", "down_proj")
BY_VOCABULARY = ("embed_tokens", "lm_head")
HEAD_NORMS = ("q_norm", "k_norm")
"""Norms of heads, split by outputs where they are over all heads."""

Load = Callable[[str], LazyTensor]


def possible_sizes(config: ModelConfig) -> list[int]:
    """Numbers of ranks that the model can be split over, whole heads and equal parts for each."""
    # Key heads are not copied to several ranks: a copy would take the memory of the KV pool that more ranks bring.
    common = math.gcd(config.num_heads, config.num_kv_heads, *_list_widths(config))
    return [size for size in range(1, common + 1) if common % size == 0]


def shard_config(config: ModelConfig, size: int) -> ModelConfig:
    """The model as one of ``size`` ranks sees it; the vocabulary stays whole. Raises :class:`UnsupportedModelError`."""
    possible = possible_sizes(config)
    if size not in possible:
        raise UnsupportedModelError(
            f"tensor_parallel_size is {size}: must be one of {', '.join(map(str, possible))} for {config.name}, as it "
            f"must divide {config.num_heads} query heads, {config.num_kv_heads} key heads and "
            f"{' and '.join(map(str, sorted(_list_widths(config))))} columns of the MLP"
        )
    return replace(
        config,
        num_heads=config.num_heads // size,
        num_kv_heads=config.num_kv_heads // size,
        intermediate_size=config.intermediate_size // size,
        layer_kinds=tuple(_shard_layer(layer, size) for layer in config.layer_kinds),
    )


def _list_widths(config: ModelConfig) -> set[int]:
    """Columns of every MLP and of every expert: each is split."""
    return {
        config.intermediate_size if layer.experts is None else layer.experts.intermediate_size
        for layer in config.layers
    }


def _shard_layer(layer: Layer, size: int) -> Layer:
    if layer.experts is None:
        return layer
    width = layer.experts.intermediate_size // size
    return replace(layer, experts=replace(layer.experts, intermediate_size=width))


def shard_tensor(config: ModelConfig, name: str, tensor: LazyTensor, rank: int, size: int) -> LazyTensor:
    """Return rank ``rank``'s part of the tensor that the decoder calls ``name``; no other part is read.

    A vocabulary that ``size`` does not divide ends with rows of zeros on the last ranks.
    """
    stem, _, kind = name.rpartition(".")
    part = stem.rpartition(".")[2]
    over_heads = part in HEAD_NORMS and config.block.head_norm == "all"
    if size == 1 or not (over_heads or part in (*BY_OUTPUTS, *BY_INPUTS, *BY_VOCABULARY)):
        return tensor
    if part in BY_INPUTS and kind == "bias":
        # The ranks' products are summed, so one of them adds it.
        return tensor if rank == 0 else torch.zeros(tuple(tensor.shape))
    dim = 1 if part in BY_INPUTS else 0
    length = -(-tensor.shape[dim] // size)
    return TensorSlice(tensor, dim, rank * length, length)


def shard_loader(config: ModelConfig, load: Load, rank: int, size: int) -> Load:
    """Return a function like ``load``, which returns tensors by name, that returns this rank's parts."""

    def load_part(name: str) -> LazyTensor:
        return shard_tensor(config, name, load(name), rank, size)

    return load_part
