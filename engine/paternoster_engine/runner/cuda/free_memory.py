"""How much of a CUDA device's memory the KV pool may take: what is free once the model has run its largest step."""

from collections.abc import Callable

import torch

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.llama import Llama
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.device_sampler import DeviceSampler


def memory_for_kv_cache(
    model: Llama,
    dtype: torch.dtype,
    device: torch.device,
    args: EngineArgs,
    max_model_len: int,
    free_bytes: Callable[[], int] | None = None,
) -> int:
    """Bytes for the KV pool: ``args.gpu_memory_utilization`` of what is free after the largest step.

    torch keeps that step's working memory, so it is no longer counted as free; what the share leaves is for the
    captured graphs. ``free_bytes``: where to ask; :func:`torch.cuda.mem_get_info` when not given.
    """
    tokens = min(args.max_batched_tokens, args.max_num_seqs * max_model_len)
    batch = largest_step(args.block_size, args.max_num_seqs, tokens)
    blocks = max(len(item.request.block_ids) for item in batch.scheduled)
    shape = KVPoolShape(blocks, args.block_size, kv_block_bytes(model.config, args.block_size, dtype))
    ModelRunner(model, allocate_kv_cache(shape, model.config, dtype, device), DeviceSampler(device)).execute(batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    free = torch.cuda.mem_get_info(device)[0] if free_bytes is None else free_bytes()
    return int(args.gpu_memory_utilization * free)


def largest_step(block_size: int, max_num_seqs: int, tokens: int) -> Batch:
    """All sequences at once with ``tokens`` prompt tokens between them, each of them sampling.

    They share their blocks: what is computed does not matter, only what it needs.
    """
    rows = min(max_num_seqs, tokens)
    lengths = [tokens // rows + (row < tokens % rows) for row in range(rows)]
    blocks = list(range(1, -(-lengths[0] // block_size) + 1))
    params = SamplingParams(max_tokens=1, top_p=0.9, repetition_penalty=1.1)
    requests = [Request(f"largest-{row}", [0] * length, params, block_ids=blocks) for row, length in enumerate(lengths)]
    return Batch(0, tuple(ScheduledRequest(r, 0, r.num_prompt, samples=True) for r in requests))
