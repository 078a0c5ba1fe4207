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
from paternoster_engine.model.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.llama import Llama
from paternoster_engine.model.registry import find_architecture
from paternoster_engine.model.source import resolve
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.parallel.parallel_runner import ParallelHostKVCache, ParallelRunner
from paternoster_engine.parallel.rank import await_all, host_blocks, load_model
from paternoster_engine.parallel.ranks import ALONE
from paternoster_engine.parallel.sharding import shard_config
from paternoster_engine.parallel.workers import Workers
from paternoster_engine.runner.cuda.free_memory import largest_step, memory_for_kv_cache
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.device import rank_device, rank_threads, resolve_device, resolve_dtype
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, KVPoolTooSmall, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.swapping_runner import HostMemory, SwappingRunner
from paternoster_engine.runner.worker import Worker
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler

log = logging.getLogger(__name__)


def build_engine(args: EngineArgs) -> tuple[Engine, Tokenizer, ModelConfig]:
    """Load the model and make the engine; raises :class:`ModelError` before anything is allocated."""
    started = time.monotonic()
    checkpoint = open_checkpoint(resolve(args.model))
    find_architecture(checkpoint.architecture)
    config = checkpoint.config
    shard_config(config, args.tensor_parallel_size)
    device = rank_device(resolve_device(args.device), 0, args.tensor_parallel_size)
    dtype = resolve_dtype(args.dtype, device)
    if args.quantization != "none" and device.type != "cpu":
        raise ModelError(f"quantization is {args.quantization!r}: must be 'none' on {device.type}")
    max_model_len = _max_model_len(args, config)
    model, memory = None, args.kv_cache_memory
    if memory == 0 and device.type == "cuda":
        model = load_model(args, checkpoint, dtype, device, ALONE)
        memory = memory_for_kv_cache(model, dtype, device, args, max_model_len)
    shape = KVPoolShape.fit(config, args.block_size, dtype, memory)
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
            overlap=overlaps(args, device),
            prefill_first=args.prefill_first,
            admission=args.admission,
            victim=args.victim,
            order=args.order,
            priority_aging=args.priority_aging,
            reserved_slots=args.reserved_slots,
            tenant_weights=args.weights,
            preemption=args.preemption,
            host_blocks=_checked_host_blocks(args, shape),
            max_queued_per_tenant=args.max_queued_per_user,
            tenant_tokens_per_second=args.user_tokens_per_second,
            tenant_token_burst=args.user_token_burst,
            force_preempt_every=_force_preempt_every(),
        ),
        live_cap=args.live_cap,
    )
    torch.set_num_threads(rank_threads(args.threads, args.tensor_parallel_size))
    tokenizer = checkpoint.tokenizer()
    runner = build_runner(args, checkpoint, shape, dtype, device, scheduler, model)
    if scheduler.config.overlap and not isinstance(runner, GraphRunner):
        runner = Worker(runner)
    log.info(
        "model %s loaded in %.1f s (%s on %s, %d ranks of %d threads)",
        config.name,
        time.monotonic() - started,
        str(dtype).removeprefix("torch."),
        device,
        args.tensor_parallel_size,
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


def build_runner(
    args: EngineArgs,
    checkpoint: Checkpoint,
    shape: KVPoolShape,
    dtype: torch.dtype,
    device: torch.device,
    scheduler: Scheduler,
    model: Llama | None = None,
) -> Runner:
    """Weights, unless ``model`` has them, and KV pool, of all ranks, behind what samples from them."""
    workers = Workers(args, device) if args.tensor_parallel_size > 1 else None
    ranks = ALONE if workers is None else workers.ranks
    model = model or load_model(args, checkpoint, dtype, device, ranks)
    cache = allocate_kv_cache(shape, model.config, dtype, device)
    cuda = device.type == "cuda"
    sampler: DeviceSampler | Sampler | RowSampler
    sampler = DeviceSampler(device) if cuda else Sampler(model.config.vocab_size, device)
    if args.batch_invariant and isinstance(sampler, Sampler):
        sampler = RowSampler(sampler)
    runner: Runner
    if workers is None:
        runner = ModelRunner(model, cache, sampler)
        if cuda:
            max_model_len = scheduler.config.max_model_len
            # Kernels are compiled, and the largest step is known to fit, before the first request.
            tokens = min(args.max_batched_tokens, args.max_num_seqs * max_model_len, shape.num_tokens)
            runner.execute(largest_step(args.block_size, args.max_num_seqs, tokens))
            runner = GraphRunner(runner, model, cache, args.max_num_seqs, max_model_len)
    else:
        runner = ParallelRunner(model, cache, sampler, workers)
        await_all(ranks, device)
    if args.preemption == "recompute":
        return runner
    host: HostMemory = HostKVCache(scheduler.config.host_blocks, cache)
    if workers is not None:
        host = ParallelHostKVCache(host, workers)
    return SwappingRunner(runner, host, scheduler.preemption_cost)


def overlaps(args: EngineArgs, device: torch.device) -> bool:
    """Whether steps are planned ahead; raises :class:`ModelError` where they cannot be."""
    if device.type == "cpu":
        return args.overlap == "on"
    able = args.preemption == "recompute" and args.tensor_parallel_size == 1
    if args.overlap == "on" and not able:
        raise ModelError(
            f"overlap is 'on' with preemption {args.preemption!r} and tensor_parallel_size "
            f"{args.tensor_parallel_size}: on CUDA it needs 'recompute' and 1"
        )
    return able and args.overlap != "off"


def _max_model_len(args: EngineArgs, config: ModelConfig) -> int:
    if args.max_model_len is None:
        return config.context_length
    if args.max_model_len > config.context_length:
        raise ModelError(
            f"max_model_len is {args.max_model_len}: must be at most {config.context_length}, "
            f"the context of {config.name}"
        )
    return args.max_model_len


def _checked_host_blocks(args: EngineArgs, shape: KVPoolShape) -> int:
    if args.preemption != "recompute" and args.swap_memory < shape.block_bytes:
        raise KVPoolTooSmall(
            f"swap_memory is {args.swap_memory} bytes: must be at least {shape.block_bytes}, the size of one block"
        )
    return host_blocks(args, shape)


def _force_preempt_every() -> int:
    value = os.environ.get(FORCE_PREEMPT_ENV, "0")
    if not value.isdecimal():
        raise ValueError(f"{FORCE_PREEMPT_ENV} is {value!r}: must be a whole number of steps, 0 for never")
    return int(value)
