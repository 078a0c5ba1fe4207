"""How long a step would take on GPUs that were not measured: a roofline of data-sheet figures. Pure.

A step reads its weights and keys at a share of the memory's rate, and multiplies at a share of the peak; the time of
both is added, which errs to the slow side where they overlap. The shares are assumptions, of the size that others
report of kernels like ours (FlashAttention-3, arXiv 2407.08608; vLLM V1): **none was measured on this engine**.
"""

import torch

from paternoster_engine.bench.calibration.step_cost import StepCostFit
from paternoster_engine.fit.gpus import GpuKind
from paternoster_engine.fit.memory import count_parameters, rank_bytes
from paternoster_engine.model.config import ModelConfig
from paternoster_kernels.scaled_cache import token_width

WEIGHTS_SHARE = 0.85
"""Share of the memory's rate that large matrices reach."""
KV_SHARE = 0.70
"""Share of the memory's rate that blocks of a KV pool reach."""
MATRIX_SHARE = 0.55
"""Share of the peak that the matrices of a prompt reach."""
ATTENTION_SHARE = 0.45
"""Share of the peak that attention of a prompt reaches."""
HOST_SECONDS = 0.5e-3
"""Time of the host between two steps on the device."""
REDUCE_SECONDS = 12e-6
"""Until a sum over ranks begins to move; there are two a layer."""


def active_parameters(config: ModelConfig) -> int:
    """Numbers that a token is multiplied with: of experts, those that it goes through."""
    idle = 0
    for layer in config.layers:
        if layer.experts is not None:
            bias = config.block.mlp_bias * (2 * layer.experts.intermediate_size + config.hidden_size)
            each = 3 * config.hidden_size * layer.experts.intermediate_size + bias
            idle += (layer.experts.count - layer.experts.active) * each
    return count_parameters(config) - idle


def step_cost(
    config: ModelConfig, gpu: GpuKind, count: int, dtype: torch.dtype, kv_dtype: torch.dtype = torch.bfloat16
) -> StepCostFit:
    """Prices of a replica on ``count`` GPUs; raises :class:`UnsupportedModelError` where it cannot be split so.

    All experts are read in each step, as a batch of a few dozen sequences does. A layer with a window of ``w`` tokens
    costs each token ``w`` keys, and nothing more for a longer context.
    """
    weights, active = rank_bytes(config, count, dtype), active_parameters(config)
    key_bytes = config.num_kv_heads * token_width(config.head_dim, kv_dtype) * kv_dtype.itemsize
    pair_flops = 4 * config.num_heads * config.head_dim
    full = sum(layer.window is None for layer in config.layers)
    windows = sum(layer.window or 0 for layer in config.layers)
    peak, kv_rate = count * gpu.flops_per_second, count * gpu.bytes_per_second * KV_SHARE
    sums = 0 if count == 1 else 2 * config.num_layers
    # A ring sends each number about twice: once to be added, once as the sum.
    moved = sums * 2 * (count - 1) / count * config.hidden_size * dtype.itemsize
    token_link = moved / gpu.link_bytes_per_second
    return StepCostFit(
        fixed_seconds=weights / (WEIGHTS_SHARE * gpu.bytes_per_second) + sums * REDUCE_SECONDS + HOST_SECONDS,
        per_prefill_token_seconds=2 * active / (MATRIX_SHARE * peak)
        + token_link
        + windows * pair_flops / (ATTENTION_SHARE * peak),
        per_decode_sequence_seconds=2 * active / peak + token_link + windows * key_bytes / kv_rate,
        per_kv_token_seconds=full * key_bytes / kv_rate,
        per_prefill_pair_seconds=full * pair_flops / (ATTENTION_SHARE * peak),
    )
