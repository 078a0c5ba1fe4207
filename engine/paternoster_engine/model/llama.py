"""Llama: pre-norm decoder with rotary embedding, grouped-query attention and a gated MLP."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.linear import Linear
from paternoster_engine.model.rotary import rotary_table
from paternoster_engine.model.step import StepInput
from paternoster_kernels import pick


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    """Rows: all query heads, then all key heads, then all value heads."""
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """Weights and forward pass; holds no state of any request."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], torch.Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """``tensor`` gives weights by their Hugging Face names."""

        def load(*names: str) -> torch.Tensor:
            parts = [tensor(name + ".weight").to(device=device, dtype=dtype) for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        self.config = config
        self._embedding = load("model.embed_tokens")
        self._layers = [_load_layer(f"model.layers.{i}.", load) for i in range(config.num_layers)]
        self._norm = load("model.norm")
        self._lm_head = Linear(self._embedding if config.tied_embeddings else load("lm_head"))
        self._rotary = rotary_table(config.head_dim, config.context_length, config.rope_theta, device)
        self._scale = config.head_dim**-0.5
        self._rms_norm = pick("rms_norm", device)
        self._rope_kv_write = pick("rope_kv_write", device)
        self._paged_attention = pick("paged_attention", device)
        self._silu_mul = pick("silu_mul", device)

    def forward(self, step: StepInput, kv_cache: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[sampling rows, vocab]`` of ``step``; writes its keys and values into ``kv_cache`` (one a layer)."""
        eps = self.config.rms_norm_eps
        residual = self._embedding[step.token_ids]
        hidden = self._rms_norm(residual, self._layers[0].attention_norm, eps)
        for i, (layer, cache) in enumerate(zip(self._layers, kv_cache, strict=True)):
            hidden = self._attention(layer, hidden, cache, step)
            hidden = self._rms_norm(hidden, layer.mlp_norm, eps, residual)
            hidden = layer.down(self._silu_mul(layer.gate_up(hidden)))
            if i + 1 < len(self._layers):
                hidden = self._rms_norm(hidden, self._layers[i + 1].attention_norm, eps, residual)
        last = step.sample_rows
        return self._lm_head(self._rms_norm(hidden[last], self._norm, eps, residual[last]))

    def linears(self) -> Iterator[Linear]:
        """Every matrix that a step multiplies with, in the order in which it does."""
        for layer in self._layers:
            yield from (layer.qkv, layer.attention_out, layer.gate_up, layer.down)
        yield self._lm_head

    def _attention(self, layer: _Layer, hidden: torch.Tensor, cache: torch.Tensor, step: StepInput) -> torch.Tensor:
        qkv = layer.qkv(hidden)
        self._rope_kv_write(qkv, step.positions, self._rotary, cache, step.attention.slots)
        queries = qkv.view(len(qkv), -1, self.config.head_dim)[:, : self.config.num_heads]
        mixed = self._paged_attention(queries, cache, step.attention, self._scale)
        return layer.attention_out(mixed.view(len(hidden), -1))


def _load_layer(prefix: str, load: Callable[..., torch.Tensor]) -> _Layer:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    return _Layer(
        attention_norm=load(prefix + "input_layernorm"),
        qkv=Linear(load(attention + "q_proj", attention + "k_proj", attention + "v_proj")),
        attention_out=Linear(load(attention + "o_proj")),
        mlp_norm=load(prefix + "post_attention_layernorm"),
        gate_up=Linear(load(mlp + "gate_proj", mlp + "up_proj")),
        down=Linear(load(mlp + "down_proj")),
    )
