"""Engines whose models embed: what is put together in another way than where text is generated."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import StartPart
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.limits import EngineLimits, scheduler_config
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.checkpoint import EncoderCheckpoint
from paternoster_engine.model.encoders.config import EncoderConfig
from paternoster_engine.model.encoders.encoder import Encoder
from paternoster_engine.model.encoders.text_decoder import TextDecoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.model_folder import ModelFolder
from paternoster_engine.model.weights.stored import LazyTensor
from paternoster_engine.runner.device import multiplies_bfloat16, rank_threads, resolve_device, resolve_dtype
from paternoster_engine.runner.pooling_runner import EncoderRunner
from paternoster_engine.start_timer import StartTimer

log = logging.getLogger(__name__)
C = TypeVar("C", ModelConfig, EncoderConfig)


def is_embedder(args: EngineArgs, source: ModelSource) -> bool:
    """Whether a decoder is to embed: a setting or its folder says so."""
    if args.task == "auto":
        return source.format == "safetensors" and ModelFolder(source.path).has_file("modules.json")
    return args.task == "embed"


@dataclass(frozen=True, slots=True)
class EmbeddingCheckpoint:
    """A decoder's checkpoint, for vectors: without what makes logits of hidden states."""

    inner: Checkpoint
    config: ModelConfig

    @property
    def architecture(self) -> str:
        return self.inner.architecture

    @property
    def notes(self) -> list[str]:
        return self.inner.notes

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self.inner.shape_of(name)

    def get_tensor(self, name: str) -> LazyTensor:
        return self.inner.get_tensor(name)

    def read_pooling(self) -> Pooling | None:
        return self.config.pooling

    def build_tokenizer(self) -> Tokenizer:
        return self.inner.build_tokenizer()

    def sampling_defaults(self) -> SamplingDefaults:
        return NO_DEFAULTS


def for_embedding(args: EngineArgs, checkpoint: Checkpoint) -> EmbeddingCheckpoint:
    """Raises :class:`ModelError` for settings that are of other models."""
    config = checkpoint.config
    pooling = _apply_settings(args, checkpoint.read_pooling() or Pooling("last", config.hidden_size))
    if pooling.mode != "last" and config.block.bidirectional is None:
        raise ModelError(f"pooling is {pooling.mode!r}: must be 'last' for a decoder, whose last token has seen all")
    if args.tensor_parallel_size > 1:
        raise ModelError(f"tensor_parallel_size is {args.tensor_parallel_size}: must be 1 for a model that embeds")
    if args.preemption != "recompute":
        raise ModelError(f"preemption is {args.preemption!r}: must be 'recompute' for a model that embeds")
    return EmbeddingCheckpoint(checkpoint, replace(config, pooling=pooling))


def check_generates(config: ModelConfig) -> None:
    """Raise :class:`ModelError` for a model whose tokens see those after them."""
    if config.block.bidirectional:
        raise ModelError(
            f"{config.block.bidirectional}: must have a causal mask to generate text; as a model that embeds (task "
            "'embed') it reads texts in both directions"
        )


def build_bidirectional_engine(
    args: EngineArgs, checkpoint: EmbeddingCheckpoint, timer: StartTimer
) -> tuple[Engine, Tokenizer, ModelConfig]:
    """Build the engine of a decoder without a causal mask, like :func:`build_encoder_engine`."""
    _check_settings(args)
    if args.batch_invariant:
        raise ModelError("batch_invariant is True: must be false for a model that reads texts in both directions")
    check_shapes(checkpoint)
    log.info("%s: the model has no causal mask and reads whole texts", checkpoint.config.block.bidirectional)

    def load(dtype: torch.dtype, device: torch.device) -> TextDecoder:
        decoder = Decoder(checkpoint.config, checkpoint.get_tensor, dtype, device, quantization=args.quantization)
        return TextDecoder(decoder, device)

    return _build_whole_text_engine(args, checkpoint, checkpoint.config, load, timer)


def build_encoder_engine(
    args: EngineArgs, source: ModelSource, timer: StartTimer
) -> tuple[Engine, Tokenizer, EncoderConfig]:
    """Load an encoder and make its engine; ``timer`` measures each part. Raises :class:`ModelError`."""
    _check_settings(args)
    checkpoint = EncoderCheckpoint(source)
    config = replace(checkpoint.config, pooling=_apply_settings(args, checkpoint.config.pooling))
    # Elsewhere oneDNN's float32 is as fast as its bfloat16 (docs/embeddings.md).
    if args.dtype == "auto" and resolve_device(args.device).type == "cpu" and not multiplies_bfloat16():
        args = args.model_copy(update={"dtype": "float32"})

    def load(dtype: torch.dtype, device: torch.device) -> Encoder:
        return Encoder(config, checkpoint.get_tensor, dtype, device)

    return _build_whole_text_engine(args, checkpoint, config, load, timer)


def _build_whole_text_engine(
    args: EngineArgs,
    checkpoint: EmbeddingCheckpoint | EncoderCheckpoint,
    config: C,
    load: Callable[[torch.dtype, torch.device], Encoder | TextDecoder],
    timer: StartTimer,
) -> tuple[Engine, Tokenizer, C]:
    """An engine whose steps take whole texts, and that keeps nothing of them."""
    tokenizer: Tokenizer = checkpoint.build_tokenizer()
    for message in (*checkpoint.notes, *tokenizer.notes):
        log.warning("%s: %s", config.name, message)
    if tokenizer.largest_id >= config.vocab_size:
        raise ModelError(
            f"the tokenizer has the token id {tokenizer.largest_id}: must be below {config.vocab_size}, "
            "the model's vocabulary"
        )
    device = resolve_device(args.device)
    dtype = resolve_dtype(args.dtype, device)
    limits = EngineLimits.resolve_limits(args, config, device, whole_prompts=True)
    torch.set_num_threads(rank_threads(args.threads, 1))
    scheduler = Scheduler(
        scheduler_config(
            args,
            max_batched_tokens=limits.max_batched_tokens,
            max_model_len=limits.max_model_len,
            # Nothing is kept of a step: these are places of its tokens alone, and as many as it can come to need.
            num_blocks=limits.max_batched_tokens // args.block_size + args.max_num_seqs,
            whole_prompts=True,
            prefix_cache=False,
        ),
        live_cap=args.live_cap,
        token_budget=args.token_budget,
    )
    runner = EncoderRunner(load(dtype, device))
    timer.record_end(StartPart.LOAD)
    log.info(
        "model %s loaded in %.1f s (%s on %s, %d threads); it embeds, by %s",
        config.name,
        timer.seconds[StartPart.LOAD],
        str(dtype).removeprefix("torch."),
        device,
        torch.get_num_threads(),
        config.pooling.mode if config.pooling else "",
    )
    return Engine(scheduler, runner), tokenizer, config


def _check_settings(args: EngineArgs) -> None:
    """Raises :class:`ModelError` for a setting that is of models that generate."""
    if args.task == "generate":
        raise ModelError("task is 'generate': must be 'embed' or 'auto', as this model embeds; it does not generate")
    for name, only in {"tensor_parallel_size": 1, "chat_template": None}.items():
        if (value := getattr(args, name)) != only:
            raise ModelError(f"{name} is {value!r}: must be {only!r} for a model that embeds")
    if args.quantization == "int8":
        raise ModelError("quantization is 'int8': must be 'auto' or 'none' for a model that embeds")


def _apply_settings(args: EngineArgs, pooling: Pooling) -> Pooling:
    """With what the settings say of it."""
    if pooling.scores:
        if args.pooling != "auto" or args.matryoshka:
            raise ModelError("pooling and matryoshka: must not be said of a model that scores pairs of texts")
        return pooling
    mode = pooling.mode if args.pooling == "auto" else args.pooling
    return replace(pooling, mode=mode, shortens=pooling.shortens or args.matryoshka)
