"""The draft model of an engine from its start-up settings, where it has one."""

import logging
from dataclasses import dataclass

import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build_embedder import check_generates, is_embedder
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.checkpoints.shapes import check_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.checkpoint import is_encoder
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.source import resolve_source
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.device import resolve_dtype, resolve_kv_dtype
from paternoster_engine.runner.draft_model import DraftModel, relative_cost
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model that fits the model; nothing of it is loaded yet."""

    checkpoint: Checkpoint
    device: torch.device
    dtype: torch.dtype
    """What the device is fastest in, whatever the model is in: a proposal need not be exact."""
    kv_dtype: torch.dtype

    def block_bytes(self, block_size: int) -> int:
        """What a block of the KV pool takes besides."""
        return kv_block_bytes(self.checkpoint.config, block_size, self.kv_dtype)

    def load(
        self, shape: KVPoolShape, sampler: Sampler | DeviceSampler | RowSampler, runner: SynchronousRunner
    ) -> DraftModel:
        """With matrices as they are in the files. ``shape`` is of the pool of ``runner``, the model's."""
        model = Decoder(self.checkpoint.config, self.checkpoint.get_tensor, self.dtype, self.device)
        cache = allocate_kv_cache(shape, model.config, self.kv_dtype, self.device, wait=False)
        drafter = DraftModel(model, cache, sampler)
        drafter.cost = relative_cost(drafter, runner)
        log.info("draft model %s: one of its steps takes %.2f of one of the model", model.config.name, drafter.cost)
        return drafter


def open_draft(
    args: EngineArgs, config: ModelConfig, tokenizer: Tokenizer, max_model_len: int, device: torch.device
) -> Draft | None:
    """None where the settings name none; raises :class:`ModelError` where it is none for the model."""
    if args.draft_model is None:
        return None
    if device.type != "cpu":
        raise ModelError(f"speculative is 'draft': must be 'auto', 'off', 'grammar' or 'ngram' on {device.type}")
    if config.kv_windows != (None,):
        raise ModelError(f"speculative is 'draft': {config.name} has attention windows, beside which none can draft")
    source = resolve_source(args.draft_model)
    setting = f"draft_model is {args.draft_model!r}"
    if is_encoder(source) or is_embedder(args, source):
        raise ModelError(f"{setting}: must be a model that generates text")
    checkpoint = open_checkpoint(source)
    drafts = checkpoint.config
    check_generates(drafts)
    check_shapes(checkpoint)
    if drafts.vocab_size != config.vocab_size:
        raise ModelError(
            f"{setting}, with a vocabulary of {drafts.vocab_size} tokens: must be that of {config.name}, which has "
            f"{config.vocab_size}"
        )
    _check_tokens(setting, checkpoint.build_tokenizer(), tokenizer)
    if drafts.context_length < max_model_len:
        raise ModelError(
            f"max_model_len is {max_model_len}: must be at most {drafts.context_length}, the context of the draft "
            f"model {drafts.name}"
        )
    if len(drafts.layer_groups) > 1:
        raise ModelError(f"{setting}: must be a model whose layers all see as many tokens")
    dtype = resolve_dtype("auto", device)
    return Draft(checkpoint, device, dtype, resolve_kv_dtype(args.kv_cache_dtype, dtype, device))


def _check_tokens(setting: str, theirs: Tokenizer, ours: Tokenizer) -> None:
    """Raise :class:`ModelError` unless each id stands for the same token in both."""
    last = max(theirs.largest_id, ours.largest_id)
    for token in range(last + 1):
        their, our = theirs.id_to_token(token), ours.id_to_token(token)
        if their != our:
            raise ModelError(f"{setting}, to which token {token} is {their!r}: must be {our!r}, as to the model")
    if theirs.eos_token_ids != ours.eos_token_ids:
        raise ModelError(
            f"{setting}, whose texts end with tokens {theirs.eos_token_ids}: must be {ours.eos_token_ids}, as the "
            "model's"
        )
