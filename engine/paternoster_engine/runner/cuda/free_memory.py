"""How much of the CUDA devices' memory the KV pool may take: what is free once the model has run its largest step."""

from collections.abc import Callable

import torch

from paternoster_engine.model.decoder import Decoder
from paternoster_engine.process_group import ALONE, Ranks
from paternoster_engine.runner.cuda.warm_up import BLOCK, StepLimits, largest_step
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import attention_order, host_step
from paternoster_engine.sampling.device_sampler import DeviceSampler


def memory_for_kv_cache(
    model: Decoder,
    kv_dtype: torch.dtype,
    device: torch.device,
    limits: StepLimits,
    share: float,
    ranks: Ranks = ALONE,
    free_bytes: Callable[[], int] | None = None,
) -> int:
    """Bytes for the KV pool of all ranks: ``share`` of what is free after the largest step.

    Every rank calls this with its part of the ``model``; the one with the least room decides for all, as each has as
    many blocks. torch keeps that step's working memory, so it is no longer counted as free; what the share leaves is
    for the captured graphs. ``free_bytes``: where to ask; :func:`torch.cuda.mem_get_info` when not given.
    """
    if device.type == "cuda":
        # What loading needed for a moment is kept by torch, and would not be counted as free.
        torch.cuda.empty_cache()
    shape = KVPoolShape(BLOCK, limits.block_size, kv_block_bytes(model.config, limits.block_size, kv_dtype))
    cache = allocate_kv_cache(shape, model.config, kv_dtype, device)
    num_groups = len(model.config.layer_groups)
    batch = largest_step(limits, num_groups)
    if ranks.rank == 0:
        ModelRunner(model, cache, DeviceSampler(device)).execute(batch)
    else:
        # Rank 0 alone samples.
        step = host_step(attention_order(batch.scheduled), num_groups)
        with torch.inference_mode():
            model.forward(step.on_device(cache[0], model.plan_attention), cache)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    free = torch.cuda.mem_get_info(device)[0] if free_bytes is None else free_bytes()
    return ranks.size * ranks.all_reduce_min(int(share * free))
