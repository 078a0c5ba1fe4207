"""What start-up settings come to for one model on one device; raises before anything is loaded."""

from dataclasses import dataclass
from typing import Any

import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.scheduling import SpeculativeName
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.model.config import ModelDescription
from paternoster_engine.model.errors import ModelError

BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""Token budget of a step: what keeps two CPU cores busy, and what vLLM's server takes on an H100."""
KV_CACHE_MEMORY = {"cpu": 512 * 2**20, "cuda": 0}
"""Bytes; 0 for what the device has free."""
SPECULATIVE: dict[str, SpeculativeName] = {"cpu": "ngram", "cuda": "off"}
"""Who proposes tokens with ``auto``: a step with proposals has no captured graph, and was measured on no GPU."""
CUDA_BLOCK_SIZES = (16, 32, 64)
"""A block is a tile of the attention kernel: tensor cores take no fewer rows, and more do not fit in shared memory."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The largest step, the longest sequence and the memory for all of them."""

    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    block_size: int
    """Tokens of a block of the KV pool."""
    kv_cache_memory: int
    """Bytes for the KV pool of all ranks; 0: as much as is free, on CUDA."""

    @classmethod
    def resolve_limits(
        cls, args: EngineArgs, config: ModelDescription, device: torch.device, *, whole_prompts: bool = False
    ) -> "EngineLimits":
        """Settings that are not given come from the model or from the kind of device; raises :class:`ModelError`.

        ``whole_prompts``: a step must hold the longest prompt.
        """
        if device.type == "cuda" and args.block_size not in CUDA_BLOCK_SIZES:
            allowed = ", ".join(map(str, CUDA_BLOCK_SIZES))
            raise ModelError(f"block_size is {args.block_size}: must be one of {allowed} on cuda")
        longest = _max_model_len(args, config)
        tokens, memory = args.max_batched_tokens, args.kv_cache_memory
        if tokens is None:
            tokens = max(BATCHED_TOKENS[device.type], args.max_num_seqs, longest if whole_prompts else 0)
        if args.token_budget is not None and args.token_budget > tokens:
            raise ModelError(
                f"token_budget is {args.token_budget}: must be at most max_batched_tokens, which is {tokens}"
            )
        return cls(
            max_num_seqs=args.max_num_seqs,
            max_batched_tokens=tokens,
            max_model_len=longest,
            block_size=args.block_size,
            kv_cache_memory=KV_CACHE_MEMORY[device.type] if memory is None else memory,
        )


def _max_model_len(args: EngineArgs, config: ModelDescription) -> int:
    if args.max_model_len is None:
        made_for = config.pooling.max_length if config.pooling is not None else None
        return min(config.context_length, made_for or config.context_length)
    if args.max_model_len > config.context_length:
        raise ModelError(
            f"max_model_len is {args.max_model_len}: must be at most {config.context_length}, "
            f"the context of {config.name}"
        )
    return args.max_model_len


def who_proposes(args: EngineArgs, device: torch.device) -> SpeculativeName:
    """What ``speculative`` comes to; not ``auto``."""
    return SPECULATIVE[device.type] if args.speculative == "auto" else args.speculative


def scheduler_config(args: EngineArgs, **sizes: Any) -> SchedulerConfig:
    """The settings that engine and scheduler share, and ``sizes``: what follows from model and device.

    Raises ``ValueError`` for sizes that contradict them.
    """
    # Several keys are several tenants, none of which is to wait for another's requests.
    sizes["order"] = args.order or ("fcfs" if args.api_keys is None else "fair-share")
    shared = (SchedulerConfig.model_fields.keys() & EngineArgs.model_fields.keys()) - sizes.keys()
    return SchedulerConfig(**{name: getattr(args, name) for name in shared}, **sizes)
