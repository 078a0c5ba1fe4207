"""An engine from its start-up settings: model, KV pool, scheduler and runner put together."""

import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from paternoster_contract.labels import FORCE_PREEMPT_ENV
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import StartPart
from paternoster_engine.build_draft import open_draft
from paternoster_engine.build_embedder import (
    EmbeddingCheckpoint,
    build_bidirectional_engine,
    build_encoder_engine,
    check_generates,
    for_embedding,
    is_embedder,
)
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.limits import EngineLimits, scheduler_config, who_proposes
from paternoster_engine.model.adapters.lora_adapter import open_adapter
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes
from paternoster_engine.model.config import ModelConfig, ModelDescription
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.checkpoint import is_encoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.model_folder import ModelFolder
from paternoster_engine.parallel.parallel_runner import ParallelHostKVCache, ParallelRunner
from paternoster_engine.parallel.rank import await_all, host_blocks, load_model, measures_memory
from paternoster_engine.parallel.sharding import shard_config
from paternoster_engine.parallel.workers import Workers
from paternoster_engine.process_group import ALONE, Ranks
from paternoster_engine.runner.cuda.free_memory import memory_for_kv_cache
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.cuda.warm_up import warm_up
from paternoster_engine.runner.device import rank_device, rank_threads, resolve_device, resolve_dtype, resolve_kv_dtype
from paternoster_engine.runner.kv_pool import HostKVCache, HostMemory, KVPoolShape, KVPoolTooSmall, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.pooling_runner import PoolingRunner
from paternoster_engine.runner.protocol import Runner, SynchronousRunner
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler
from paternoster_engine.start_timer import StartTimer

log = logging.getLogger(__name__)


def build_engine(args: EngineArgs, timer: StartTimer | None = None) -> tuple[Engine, Tokenizer, ModelDescription]:
    """Load the model and make the engine; ``timer`` measures each part.

    Raises :class:`ModelError` before anything is allocated; what is measured may prove too little after that.
    """
    timer = timer or StartTimer()
    timer.record_end(StartPart.IMPORTS)
    source = resolve_source(args.model)
    timer.record_end(StartPart.DOWNLOAD)
    # Other ranks open what was found here: an address may lead elsewhere later, and is not theirs to fetch.
    args = args.model_copy(update={"model": source.path.as_uri()})
    if args.max_adapter_memory and (is_encoder(source) or is_embedder(args, source)):
        raise ModelError(f"max_adapter_memory is {args.max_adapter_memory}: must be 0 for vectors of texts")
    if args.draft_model is not None and (is_encoder(source) or is_embedder(args, source)):
        raise ModelError("speculative is 'draft': must be 'auto' or 'off' for vectors of texts")
    if is_encoder(source):
        return build_encoder_engine(args, source, timer)
    checkpoint = open_checkpoint(source)
    if is_embedder(args, source):
        checkpoint = for_embedding(args, checkpoint)
    config = checkpoint.config
    if isinstance(checkpoint, EmbeddingCheckpoint) and config.block.bidirectional:
        return build_bidirectional_engine(args, checkpoint, timer)
    check_generates(config)
    check_shapes(checkpoint)
    tokenizer = _build_tokenizer(checkpoint, args.chat_template)
    defaults = _sampling_defaults(checkpoint, args)
    shard_config(config, args.tensor_parallel_size)
    device = rank_device(resolve_device(args.device), 0, args.tensor_parallel_size)
    dtype = resolve_dtype(args.dtype, device)
    kv_dtype = resolve_kv_dtype(args.kv_cache_dtype, dtype, device)
    if args.quantization == "int8" and device.type != "cpu":
        raise ModelError(f"quantization is {args.quantization!r}: must be 'auto' or 'none' on {device.type}")
    limits = EngineLimits.resolve_limits(args, config, device)
    draft = open_draft(args, config, tokenizer, limits.max_model_len, device)
    torch.set_num_threads(rank_threads(args.threads, args.tensor_parallel_size))
    loaded, memory = None, limits.kv_cache_memory
    if measures_memory(limits, device):
        loaded = load_ranks(args, checkpoint, dtype, device)
        timer.record_end(StartPart.LOAD)
        memory = memory_for_kv_cache(loaded.model, kv_dtype, device, limits, args.gpu_memory_utilization, loaded.ranks)
        timer.record_end(StartPart.WARM_UP)
    beside = 0 if draft is None else draft.block_bytes(args.block_size)
    shape = KVPoolShape.fit_memory(config, args.block_size, kv_dtype, memory, beside)
    scheduling = scheduler_config(
        args,
        max_batched_tokens=limits.max_batched_tokens,
        max_model_len=limits.max_model_len,
        speculative=who_proposes(args, device),
        num_blocks=shape.num_blocks,
        windows=config.kv_windows,
        watermark_blocks=shape.num_blocks * args.watermark_percent // 100,
        overlap=uses_overlap(args, device) and config.pooling is None,
        host_blocks=_checked_host_blocks(args, shape),
        force_preempt_every=_force_preempt_every(),
    )
    if loaded is None:
        loaded = load_ranks(args, checkpoint, dtype, device)
        timer.record_end(StartPart.LOAD)
    runner = build_runner(args, loaded, shape, kv_dtype, device, scheduling)
    drafter = None
    if draft is not None:
        assert isinstance(runner, SynchronousRunner)
        drafter = draft.load(shape, make_sampler(args, config, device), runner)
    scheduler = Scheduler(scheduling, args.live_cap, token_budget=args.token_budget, drafter=drafter)
    timer.record_end(StartPart.WARM_UP)
    log.info(
        "model %s loaded in %.1f s (%s on %s, %d ranks of %d threads)",
        config.name,
        timer.seconds[StartPart.LOAD],
        str(dtype).removeprefix("torch."),
        device,
        args.tensor_parallel_size,
        torch.get_num_threads(),
    )
    log.info(
        "KV pool = %d tokens = %.1f concurrent at max_model_len %d (%d blocks of %d tokens in %s, %d groups of layers)",
        shape.num_tokens,
        shape.num_blocks / scheduler.kv.groups.count_sequence_blocks(limits.max_model_len),
        limits.max_model_len,
        shape.num_blocks,
        shape.block_size,
        str(kv_dtype).removeprefix("torch."),
        shape.num_groups,
    )
    opens = partial(open_adapter, config=config, dtype=dtype, device=device) if args.max_adapter_memory else None
    engine = Engine(scheduler, runner, open_adapter=opens)
    return engine, tokenizer, replace(config, sampling_defaults=defaults)


def _build_tokenizer(checkpoint: Checkpoint, chat_template: str | None) -> Tokenizer:
    """Raises :class:`ModelError` where it does not belong to the model, and where there is no such template."""
    try:
        tokenizer = checkpoint.build_tokenizer()
    except RecursionError as error:
        raise ModelError(str(error)) from error
    for message in (*checkpoint.notes, *tokenizer.notes):
        log.warning("%s: %s", checkpoint.config.name, message)
    if tokenizer.largest_id >= checkpoint.config.vocab_size:
        raise ModelError(
            f"the tokenizer has the token id {tokenizer.largest_id}: must be below {checkpoint.config.vocab_size}, "
            "the model's vocabulary"
        )
    if chat_template is not None:
        return tokenizer.with_template(_read_template(chat_template))
    return tokenizer


def _sampling_defaults(checkpoint: Checkpoint, args: EngineArgs) -> SamplingDefaults:
    """Return and log the settings of requests without their own; raises :class:`ModelError`."""
    if args.generation_config == "none":
        return NO_DEFAULTS
    try:
        defaults = checkpoint.sampling_defaults()
    except ModelError as error:
        raise ModelError(f"{error}; generation_config 'none' leaves it out") from error
    if values := defaults.list_set_values():
        settings = ", ".join(f"{name} {value:g}" for name, value in values.items())
        log.info("default sampling settings are the publisher's %s (generation_config 'none' disables them)", settings)
    for message in defaults.notes:
        log.warning("%s: %s", checkpoint.config.name, message)
    return defaults


def _read_template(template: str) -> str:
    """The text that the setting ``chat_template`` is, or that is in the file it names; raises :class:`ModelError`."""
    if any(c in template for c in "{}\n"):
        return template
    path = Path(template).absolute()
    try:
        return ModelFolder(path.parent).read_text(path.name)
    except ModelError as error:
        raise ModelError(
            f"chat_template is {shorten_value(template)}: must be a template or a file with one: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rank 0's part of the model, and the other ranks where there are any."""

    model: Decoder
    workers: Workers | None = None

    @property
    def ranks(self) -> Ranks:
        return ALONE if self.workers is None else self.workers.ranks


def load_ranks(args: EngineArgs, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> Loaded:
    """Start the other ranks, which load their parts meanwhile, and load rank 0's."""
    workers = Workers(args, device) if args.tensor_parallel_size > 1 else None
    ranks = ALONE if workers is None else workers.ranks
    return Loaded(load_model(args, checkpoint, dtype, device, ranks), workers)


def build_runner(
    args: EngineArgs,
    loaded: Loaded,
    shape: KVPoolShape,
    kv_dtype: torch.dtype,
    device: torch.device,
    scheduling: SchedulerConfig,
) -> Runner:
    """The KV pool of all ranks and what samples from them."""
    model, workers = loaded.model, loaded.workers
    # Gigabytes: the first requests need not wait for the last ones.
    cache = allocate_kv_cache(shape, model.config, kv_dtype, device, wait=False)
    if model.config.pooling is not None:
        return PoolingRunner(model, cache)
    sampler = make_sampler(args, model.config, device)
    own = HostKVCache(scheduling.host_blocks, cache) if args.preemption != "recompute" else None
    if workers is None:
        eager = ModelRunner(model, cache, sampler, own)
    else:
        host: HostMemory | None = None if own is None else ParallelHostKVCache(own, workers)
        eager = ParallelRunner(model, cache, sampler, workers, host)
        await_all(loaded.ranks, device)
    if device.type != "cuda":
        return eager
    # Kernels are compiled, and the largest step is known to fit, before the first request.
    warm_up(eager, scheduling, len(model.config.layer_groups))
    if workers is not None or args.max_adapter_memory:
        # No captured graph has rows with adapters.
        return eager
    return GraphRunner(eager, model, cache, args.max_num_seqs, scheduling.max_model_len)


def make_sampler(args: EngineArgs, config: ModelConfig, device: torch.device) -> Sampler | DeviceSampler | RowSampler:
    """What chooses tokens on ``device``."""
    if device.type == "cuda":
        return DeviceSampler(device)
    sampler = Sampler(config.vocab_size, device)
    return RowSampler(sampler) if args.batch_invariant else sampler


def uses_overlap(args: EngineArgs, device: torch.device) -> bool:
    """Whether each step is planned while the one before runs.

    A CPU is as busy planning as it is computing: it gained nothing there (benchmarks/engine/results.md, "Overlap").
    """
    graphs = args.tensor_parallel_size == 1 and not args.max_adapter_memory
    return device.type == "cuda" and args.preemption == "recompute" and graphs


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
