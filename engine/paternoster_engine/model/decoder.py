"""A decoder-only transformer, described by its :class:`ModelConfig`."""

import logging
from collections.abc import Callable, Iterator, Sequence

import torch

from paternoster_engine.model.config import Experts, ModelConfig, Rope
from paternoster_engine.model.layers.attention import Attention
from paternoster_engine.model.layers.embedding import VocabParallelEmbedding
from paternoster_engine.model.layers.experts import MixtureOfExperts
from paternoster_engine.model.layers.layer import DecoderLayer
from paternoster_engine.model.layers.linear import Linear
from paternoster_engine.model.layers.lora import LayerLora
from paternoster_engine.model.layers.mlp import Mlp
from paternoster_engine.model.layers.one_call import in_one_call
from paternoster_engine.model.layers.parts import Parts, Quantization
from paternoster_engine.model.layers.rotary import rotary_table
from paternoster_engine.model.step import StepInput
from paternoster_engine.model.weights.heap import trim_heap
from paternoster_engine.model.weights.stored import LazyTensor
from paternoster_engine.process_group import ALONE, Ranks

log = logging.getLogger(__name__)


class Decoder:
    """Weights and forward pass; holds no state of any request."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], LazyTensor],
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks = ALONE,
        *,
        invariant: bool = False,
        quantization: Quantization = "auto",
    ) -> None:
        """``tensor`` gives weights by the decoder's names, which are Llama's in Hugging Face files.

        With several ``ranks``, ``config`` and ``tensor`` are this rank's, from :mod:`parallel.sharding`.
        ``invariant``: by operations in which a token's numbers do not depend on what else is in its step.
        ``quantization``: auto for matrices in the blocks of few bits that a file has, none for numbers of ``dtype``,
        int8 for matrices in int8, the embedding as it is.
        """
        parts = Parts(config, tensor, dtype, device, ranks, invariant=invariant, quantization=quantization)
        self.config = config
        self.plan_attention = parts.pick_operation("plan_attention")
        """Makes of a :class:`RaggedBatch` what the attention here reads."""
        self._ranks = ranks
        self._embedding = VocabParallelEmbedding(parts.load_table("model.embed_tokens"), ranks)
        # While little else is in memory: where it is put into another order, it is there twice for a moment.
        self._lm_head = None
        if config.pooling is None:
            tied = config.tied_embeddings
            self._lm_head = parts.project_table(self._embedding.weight) if tied else parts.load_linear("lm_head")
        self._rotary: dict[Rope | None, torch.Tensor | None] = {
            rope: None if rope is None else rotary_table(rope, config.head_dim, config.context_length, device)
            for rope in dict.fromkeys(layer.rope for layer in config.layers)
        }
        places = {
            layer: (group, place)
            for group, members in enumerate(config.layer_groups)
            for place, layer in enumerate(members.layers)
        }
        self._layers = [self._load_layer(parts, number, *places[number]) for number in range(config.num_layers)]
        trim_heap()
        self._norm = parts.load_weight("model.norm")
        self._rms_norm = parts.pick_operation("rms_norm")
        self._add_lora = parts.pick_operation("add_lora")
        native = device.type == "cpu" and config.block.bidirectional is None
        self._native_layers = in_one_call(config, self._layers, ranks) if native else None
        _log_formats(parts, dtype)

    def forward(self, step: StepInput, kv_cache: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[sampling rows, vocab]`` of ``step``; writes its keys and values into ``kv_cache``.

        ``kv_cache``: one tensor for each layer of a group, from :func:`allocate_kv_cache`. Of a model with a pooling
        it is the hidden states, ``[sampling rows, hidden]``. Ranks other than the first get their part of the logits
        alone. A bidirectional model has no ``kv_cache``.
        """
        config = self.config
        residual = self._embedding(step.token_ids)
        if config.embedding_scale != 1.0:
            residual = residual * config.embedding_scale
        hidden: torch.Tensor
        if self._native_layers is not None and self._native_layers.reads_tiles(kv_cache, step.attention):
            hidden = self._native_layers(residual, step.positions, kv_cache, step.attention, step.lora)
        else:
            hidden = self._through_layers(residual, step, kv_cache)
        last = step.sample_rows
        hidden = self._rms_norm(hidden[last], self._norm, config.rms_norm_eps, residual[last])
        if self._lm_head is None:
            return hidden
        logits = self._lm_head(hidden)
        logits = self._ranks.gather_columns(logits)[:, : config.vocab_size]
        if config.logit_scale != 1.0:
            logits = logits * config.logit_scale
        if (cap := config.logit_softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        return logits

    def iterate_linears(self) -> Iterator[Linear]:
        """Every matrix that a step multiplies with, in the order in which it does."""
        for layer in self._layers:
            yield from (layer.attention.qkv, layer.attention.out, *layer.mlp.iterate_linears())
        if self._lm_head is not None:
            yield self._lm_head

    def _load_layer(self, parts: Parts, number: int, group: int, place: int) -> DecoderLayer:
        prefix, where, kind = f"model.layers.{number}.", self.config.block.norms, self.config.layers[number]
        before, after = where != "after", where != "before"
        trim_heap()
        return DecoderLayer(
            group=group,
            place=place,
            attention_norm=parts.load_weight(prefix + "input_layernorm") if before else None,
            attention=Attention(parts, prefix + "self_attn.", kind, self._rotary[kind.rope]),
            attention_post_norm=parts.load_weight(prefix + "attention_post_norm") if after else None,
            mlp_norm=parts.load_weight(prefix + "post_attention_layernorm") if before else None,
            mlp=_load_mlp(parts, prefix + "mlp.", kind.experts),
            mlp_post_norm=parts.load_weight(prefix + "mlp_post_norm") if after else None,
        )

    def _through_layers(
        self, residual: torch.Tensor, step: StepInput, kv_cache: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """What the last layer puts out; ``residual``, the embeddings, becomes what the last norm adds to it."""
        added = None
        for number, layer in enumerate(self._layers):
            lora = None if step.lora is None else LayerLora(self._add_lora, step.lora, number)
            cache = kv_cache[layer.place] if kv_cache else None
            plan = step.attention[layer.group]
            hidden = self._read(residual, added, layer.attention_norm)
            mixed = layer.attention(hidden, cache, step.positions, plan, lora)
            added = self._norm_output(mixed, layer.attention_post_norm)
            hidden = self._read(residual, added, layer.mlp_norm)
            added = self._norm_output(layer.mlp(hidden, lora), layer.mlp_post_norm)
        assert added is not None
        return added

    def _read(self, residual: torch.Tensor, added: torch.Tensor | None, norm: torch.Tensor | None) -> torch.Tensor:
        """What attention or MLP is given, once ``added`` is in ``residual``."""
        eps = self.config.rms_norm_eps
        if norm is None:
            return residual if added is None else residual.add_(added)
        hidden: torch.Tensor
        hidden = self._rms_norm(residual, norm, eps) if added is None else self._rms_norm(added, norm, eps, residual)
        return hidden

    def _norm_output(self, output: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        """What attention or MLP adds to the residual."""
        if norm is not None:
            output = self._rms_norm(output, norm, self.config.rms_norm_eps)
        scale = self.config.block.residual_scale
        return output if scale == 1.0 else output * scale


def _log_formats(parts: Parts, dtype: torch.dtype) -> None:
    """What became of matrices in blocks of few bits."""
    for verb, formats in (("kept as they are", parts.stored_formats), (f"kept as {str(dtype)[6:]}", parts.unpacked)):
        if formats:
            counts = ", ".join(f"{count} in {name}" for name, count in sorted(formats.items()))
            log.info("matrices %s: %s", verb, counts)


def _load_mlp(parts: Parts, prefix: str, experts: Experts | None) -> Mlp | MixtureOfExperts:
    return Mlp(parts, prefix) if experts is None else MixtureOfExperts(parts, prefix, experts)
