"""Llama: pre-norm decoder with rotary embedding, grouped-query attention and a gated MLP."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.embedding import VocabParallelEmbedding
from paternoster_engine.model.int8_linear import Int8Linear
from paternoster_engine.model.invariant_linear import InvariantLinear
from paternoster_engine.model.linear import Gate, Linear
from paternoster_engine.model.rotary import rotary_table
from paternoster_engine.model.step import StepInput
from paternoster_engine.parallel.ranks import ALONE, Ranks
from paternoster_kernels import pick, pick_invariant
from paternoster_kernels.cpu.decoder_layers import DecoderLayers, LayerWeights
from paternoster_kernels.cpu.library import library


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    """Rows: all query heads, then all key heads, then all value heads."""
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    """With the gate."""
    down: Linear


class Llama:
    """Weights and forward pass; holds no state of any request."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], torch.Tensor],
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks = ALONE,
        *,
        invariant: bool = False,
        int8: bool = False,
    ) -> None:
        """``tensor`` gives weights by their Hugging Face names.

        With several ``ranks``, ``config`` and ``tensor`` are this rank's, from :mod:`parallel.sharding`.
        ``invariant``: by operations in which a token's numbers do not depend on what else is in its step.
        ``int8``: matrices in int8; the embedding stays as it is.
        """

        def load(*names: str) -> torch.Tensor:
            parts = [tensor(name + ".weight").to(device=device, dtype=dtype) for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        choose = pick_invariant if invariant else pick
        # Sums of int8 are exact, and so invariant by themselves.
        linear = Int8Linear if int8 else InvariantLinear if invariant else Linear
        self.config = config
        self.plan_attention = choose("plan_attention", device)
        """Makes of a :class:`RaggedBatch` what the attention here reads."""
        self._ranks = ranks
        self._embedding = VocabParallelEmbedding(load("model.embed_tokens"), ranks)
        gate = choose("silu_mul", device)
        self._layers = [_load_layer(f"model.layers.{i}.", load, linear, gate) for i in range(config.num_layers)]
        self._norm = load("model.norm")
        self._lm_head = linear(self._embedding.weight if config.tied_embeddings else load("lm_head"))
        self._rotary = rotary_table(
            config.head_dim, config.context_length, config.rope_theta, device, config.rope_scaling
        )
        self._scale = config.head_dim**-0.5
        self._rms_norm = choose("rms_norm", device)
        self._rope_kv_write = choose("rope_kv_write", device)
        self._paged_attention = choose("paged_attention", device)
        self._native_layers = self._in_one_call() if device.type == "cpu" else None

    def forward(self, step: StepInput, kv_cache: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[sampling rows, vocab]`` of ``step``; writes its keys and values into ``kv_cache`` (one a layer).

        Ranks other than the first get their part of the logits alone.
        """
        residual = self._embedding(step.token_ids)
        if self._native_layers is not None and self._native_layers.takes(kv_cache, step.attention):
            hidden = self._native_layers(residual, step.positions, kv_cache, step.attention)
        else:
            hidden = self._through_layers(residual, step, kv_cache)
        last = step.sample_rows
        logits = self._lm_head(self._rms_norm(hidden[last], self._norm, self.config.rms_norm_eps, residual[last]))
        return self._ranks.gather_columns(logits)[:, : self.config.vocab_size]

    def linears(self) -> Iterator[Linear]:
        """Every matrix that a step multiplies with, in the order in which it does."""
        for layer in self._layers:
            yield from (layer.qkv, layer.attention_out, layer.gate_up, layer.down)
        yield self._lm_head

    def _through_layers(
        self, residual: torch.Tensor, step: StepInput, kv_cache: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """What the last layer puts out; ``residual``, the embeddings, becomes what the last norm adds to it."""
        eps = self.config.rms_norm_eps
        hidden = self._rms_norm(residual, self._layers[0].attention_norm, eps)
        for i, (layer, cache) in enumerate(zip(self._layers, kv_cache, strict=True)):
            hidden = self._attention(i, hidden, cache, step)
            hidden = self._rms_norm(hidden, layer.mlp_norm, eps, residual)
            hidden = self._ranks.sum(layer.down(layer.gate_up(hidden)))
            if i + 1 < len(self._layers):
                hidden = self._rms_norm(hidden, self._layers[i + 1].attention_norm, eps, residual)
        return hidden

    def _in_one_call(self) -> DecoderLayers | None:
        """The layers as one native operation, where there is one for them."""
        layers = [
            LayerWeights(
                attention_norm=layer.attention_norm,
                qkv=layer.qkv.weight,
                attention_out=layer.attention_out.weight,
                mlp_norm=layer.mlp_norm,
                gate_up=layer.gate_up.weight,
                down=layer.down.weight,
            )
            for layer in self._layers
        ]
        if library() is None or self._ranks.size > 1 or not all(layer.native for layer in layers):
            return None
        return DecoderLayers(layers, self._rotary, self.config.head_dim, self.config.rms_norm_eps)

    def _project(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values before rotation, ``[tokens, (heads + 2 * kv_heads) * head_dim]``."""
        return self._layers[layer].qkv(hidden)

    def _attention(self, layer: int, hidden: torch.Tensor, cache: torch.Tensor, step: StepInput) -> torch.Tensor:
        qkv = self._project(layer, hidden)
        self._rope_kv_write(qkv, step.positions, self._rotary, cache, step.attention.slots)
        queries = qkv.view(len(qkv), -1, self.config.head_dim)[:, : self.config.num_heads]
        mixed = self._paged_attention(queries, cache, step.attention, self._scale)
        return self._ranks.sum(self._layers[layer].attention_out(mixed.view(len(hidden), -1)))


def _load_layer(prefix: str, load: Callable[..., torch.Tensor], linear: type[Linear], gate: Gate) -> _Layer:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    return _Layer(
        attention_norm=load(prefix + "input_layernorm"),
        qkv=linear(load(attention + "q_proj", attention + "k_proj", attention + "v_proj")),
        attention_out=linear(load(attention + "o_proj")),
        mlp_norm=load(prefix + "post_attention_layernorm"),
        gate_up=linear(load(mlp + "gate_proj", mlp + "up_proj"), gate),
        down=linear(load(mlp + "down_proj")),
    )
