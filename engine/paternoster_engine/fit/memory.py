"""Which GPUs a model fits on, and how much of a KV cache is left beside it: by its description alone. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from paternoster_engine.fit.gpus import GPUS, GpuKind
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.parallel.sharding import possible_sizes, shard_config
from paternoster_engine.runner.kv_pool import kv_block_bytes

GPU_COUNTS = (1, 2, 4, 8)
STEP_BYTES = 2_500_000_000
"""Memory of each GPU for CUDA itself and the largest step. An estimate for steps of up to 8192 tokens."""
VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """One replica on GPUs of one kind."""

    gpu: str
    count: int
    memory: int
    """Bytes for the KV pool, on all of them together."""


def count_parameters(config: ModelConfig) -> int:
    """Numbers that are loaded."""
    return sum(math.prod(shape) for _, shape in expected_shapes(config))


def rank_bytes(config: ModelConfig, ranks: int, dtype: torch.dtype) -> int:
    """Bytes of the weights on one of ``ranks`` devices."""
    part = shard_config(config, ranks)
    shapes = dict(expected_shapes(part))
    vocabulary = sum(-(-shape[0] // ranks) * shape[1] for name, shape in shapes.items() if name in VOCABULARY)
    layers = sum(math.prod(shape) for name, shape in shapes.items() if name not in VOCABULARY)
    return (vocabulary + layers) * dtype.itemsize


def token_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of a token's keys and values in the layers that keep all tokens, on all devices together."""
    return kv_block_bytes(config, 1, dtype) * config.kv_windows.count(None)


def window_bytes(config: ModelConfig, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes that the layers with a window keep, together, of a sequence of ``num_tokens`` that is longer or not."""
    windowed = sum(min(num_tokens, window) for window in config.kv_windows if window is not None)
    return kv_block_bytes(config, 1, dtype) * windowed


def sequence_bytes(config: ModelConfig, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of one sequence's KV cache, not counting what its last blocks leave empty."""
    return num_tokens * token_bytes(config, dtype) + window_bytes(config, num_tokens, dtype)


def find_fits(
    config: ModelConfig,
    dtype: torch.dtype,
    utilization: float,
    gpus: Mapping[str, GpuKind] = GPUS,
    kv_dtype: torch.dtype = torch.bfloat16,
) -> Iterator[MemoryFit]:
    """On each kind of GPU the fewest that hold the model, and more of them.

    ``utilization``: the share of what weights and a step leave free that the KV pool takes, as the engine has it.
    """
    counts: Sequence[int] = [count for count in GPU_COUNTS if count in possible_sizes(config)]
    for name, gpu in gpus.items():
        for count in counts:
            free = gpu.memory - rank_bytes(config, count, dtype) - STEP_BYTES
            pool = int(free * utilization) * count
            if pool >= sequence_bytes(config, 1, kv_dtype):
                yield MemoryFit(name, count, pool)
