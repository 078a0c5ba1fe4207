"""An engine from its start-up settings: model, KV pool, scheduler and runner put together."""

import logging
import os
import time

import torch

from paternoster_contract.engine_args import EngineArgs
from paternoster_contract.labels import FORCE_PREEMPT_ENV
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine, Runner
from paternoster_engine.model.checkpoint import open_checkpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.registry import find_architecture
from paternoster_engine.model.source import resolve
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.device import available_cpus, resolve_device, resolve_dtype
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, KVPoolTooSmall, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.swapping_runner import SwappingRunner
from paternoster_engine.sampling.sampler import Sampler

log = logging.getLogger(__name__)


def build_engine(args: EngineArgs) -> tuple[Engine, Tokenizer, ModelConfig]:
    """Load the model and make the engine; raises :class:`ModelError` before anything is allocated."""
    started = time.monotonic()
    checkpoint = open_checkpoint(resolve(args.model))
    architecture = find_architecture(checkpoint.architecture)
    config = checkpoint.config
    device = resolve_device(args.device)
    dtype = resolve_dtype(args.dtype, device)
    max_model_len = _max_model_len(args, config)
    shape = KVPoolShape.fit(config, args.block_size, dtype, args.kv_cache_memory)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=args.max_num_seqs,
            max_batched_tokens=args.max_batched_tokens,
            max_model_len=max_model_len,
            block_size=shape.block_size,
            num_blocks=shape.num_blocks,
            watermark_blocks=shape.num_blocks * args.watermark_percent // 100,
            max_queued_requests=args.max_queued_requests,
            prefix_cache=args.prefix_cache,
            await_prefix=args.await_prefix,
            mode=args.mode,
            batch_size=args.batch_size or 0,
            batch_wait=args.batch_wait,
            prefill_first=args.prefill_first,
            admission=args.admission,
            victim=args.victim,
            order=args.order,
            priority_aging=args.priority_aging,
            reserved_slots=args.reserved_slots,
            tenant_weights=args.weights,
            preemption=args.preemption,
            host_blocks=_host_blocks(args, shape),
            max_queued_per_tenant=args.max_queued_per_user,
            tenant_tokens_per_second=args.user_tokens_per_second,
            tenant_token_burst=args.user_token_burst,
            force_preempt_every=_force_preempt_every(),
        ),
        live_cap=args.live_cap,
    )
    torch.set_num_threads(args.threads or available_cpus())
    tokenizer = checkpoint.tokenizer()
    model = architecture(config, checkpoint.tensor, dtype, device)
    cache = allocate_kv_cache(shape, config, dtype, device)
    runner: Runner = ModelRunner(model, cache, Sampler(config.vocab_size, device))
    if args.preemption != "recompute":
        host = HostKVCache(scheduler.config.host_blocks, cache)
        runner = SwappingRunner(runner, host, scheduler.preemption_cost)
    log.info(
        "model %s loaded in %.1f s (%s on %s, %d threads)",
        config.name,
        time.monotonic() - started,
        str(dtype).removeprefix("torch."),
        device,
        torch.get_num_threads(),
    )
    log.info(
        "KV pool = %d tokens = %.1f concurrent at max_model_len %d (%d blocks of %d tokens)",
        shape.num_tokens,
        shape.num_tokens / max_model_len,
        max_model_len,
        shape.num_blocks,
        shape.block_size,
    )
    return Engine(scheduler, runner), tokenizer, config


def _max_model_len(args: EngineArgs, config: ModelConfig) -> int:
    if args.max_model_len is None:
        return config.context_length
    if args.max_model_len > config.context_length:
        raise ModelError(
            f"max_model_len is {args.max_model_len}: must be at most {config.context_length}, "
            f"the context of {config.name}"
        )
    return args.max_model_len


def _host_blocks(args: EngineArgs, shape: KVPoolShape) -> int:
    if args.preemption == "recompute":
        return 0
    if args.swap_memory < shape.block_bytes:
        raise KVPoolTooSmall(
            f"swap_memory is {args.swap_memory} bytes: must be at least {shape.block_bytes}, the size of one block"
        )
    return args.swap_memory // shape.block_bytes


def _force_preempt_every() -> int:
    value = os.environ.get(FORCE_PREEMPT_ENV, "0")
    if not value.isdecimal():
        raise ValueError(f"{FORCE_PREEMPT_ENV} is {value!r}: must be a whole number of steps, 0 for never")
    return int(value)
