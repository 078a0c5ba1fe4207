"""A layer's attention: over the paged KV cache, or within whole texts."""

from collections.abc import Sequence
from typing import Any

import torch

from paternoster_engine.model.config import Layer
from paternoster_engine.model.layers.lora import LayerLora
from paternoster_engine.model.layers.parts import Parts
from paternoster_engine.model.layers.text_attention import attend_texts, rotate_heads


class Attention:
    """Grouped-query attention (arXiv 2305.13245) with what the model's :class:`Block` and its :class:`Layer` say."""

    def __init__(self, parts: Parts, prefix: str, layer: Layer, rotary: torch.Tensor | None) -> None:
        """``rotary``: the table of the layer's embedding, None for a layer without."""
        config, block = parts.config, parts.config.block
        self._config, self._ranks = config, parts.ranks
        self.qkv = parts.load_linear(*(f"{prefix}{part}_proj" for part in "qkv"), bias=block.qkv_bias)
        """Rows: all query heads, then all key heads, then all value heads."""
        self._widths = tuple(config.head_dim * heads for heads in (config.num_heads, *[config.num_kv_heads] * 2))
        self.out = parts.load_linear(prefix + "o_proj", bias=block.out_bias)
        self.rotary = rotary
        """The table of its embedding, None for none."""
        self.scale = config.head_dim**-0.5 if block.attention_scale is None else block.attention_scale
        """Scale of scores."""
        # Named only where they are, as not every implementation has them.
        self.options: dict[str, Any] = {}
        """Window, cap and sinks, those that there are."""
        if layer.window is not None:
            self.options["window"] = layer.window
        if block.attention_softcap is not None:
            self.options["softcap"] = block.attention_softcap
        if block.sinks:
            self.options["sinks"] = parts.load_weight(prefix + "sinks")
        self.norms: tuple[torch.Tensor, ...] = ()
        """Norms of queries and of keys, where there are any."""
        if block.head_norm != "none":
            self.norms = parts.load_weight(prefix + "q_norm"), parts.load_weight(prefix + "k_norm")
        self._head_norm = parts.pick_operation("head_norm")
        self._rms_norm = parts.pick_operation("rms_norm")
        self._kv_write = parts.pick_operation("kv_write")
        self._rope_kv_write = parts.pick_operation("rope_kv_write")
        self._paged_attention = parts.pick_operation("paged_attention")

    def __call__(
        self,
        hidden: torch.Tensor,
        cache: torch.Tensor | None,
        positions: torch.Tensor,
        plan: Any,
        lora: LayerLora | None = None,
    ) -> torch.Tensor:
        """What is added to the residual, ``[tokens, hidden]``; keys and values are left in ``cache``.

        ``positions [tokens]``; ``plan``: of the layer's group. A bidirectional model has no ``cache``, and its ``plan``
        is the length of each text.
        """
        config = self._config
        qkv = self.qkv(hidden, None if lora is None else lora.of_matrix("qkv", self._widths))
        if self.norms:
            self._norm_heads(qkv)
        heads = qkv.view(len(qkv), -1, config.head_dim)
        if config.block.bidirectional:
            return self._ranks.all_reduce(self.out(self._attend_texts(heads, positions, plan).flatten(1)))
        if self.rotary is None:
            keys, values = heads[:, config.num_heads :].split(config.num_kv_heads, 1)
            self._kv_write(keys, values, cache, plan.slots)
        else:
            self._rope_kv_write(qkv, positions, self.rotary, cache, plan.slots)
        queries = heads[:, : config.num_heads]
        mixed = self._paged_attention(queries, cache, plan, self.scale, **self.options)
        adapters = None if lora is None else lora.of_matrix("out", (self.out.out_features,))
        return self._ranks.all_reduce(self.out(mixed.view(len(hidden), -1), adapters))

    def _attend_texts(self, heads: torch.Tensor, positions: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Attend in ``heads [tokens, all heads, head_dim]``, which are rotated in place."""
        counts = self._config.num_heads, self._config.num_kv_heads
        if self.rotary is not None:
            rotate_heads(heads[:, : sum(counts)], positions, self.rotary)
        queries, keys, values = heads.split((*counts, counts[1]), 1)
        return attend_texts(queries, keys, values, lengths, self.scale, **self.options)

    def _norm_heads(self, qkv: torch.Tensor) -> None:
        """Norm queries and keys in place."""
        config = self._config
        if config.block.head_norm == "each":
            self._head_norm(qkv, *self.norms, config.num_kv_heads, config.rms_norm_eps)
            return
        keys_from = config.num_heads * config.head_dim
        keys_to = keys_from + config.num_kv_heads * config.head_dim
        for part, weight in zip((qkv[:, :keys_from], qkv[:, keys_from:keys_to]), self.norms, strict=True):
            part.copy_(self._norm_of_all(part.contiguous(), weight))

    def _norm_of_all(self, part: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Over all heads of all ranks."""
        eps, size = self._config.rms_norm_eps, self._ranks.size
        if size == 1:
            normed: torch.Tensor = self._rms_norm(part, weight, eps)
            return normed
        wide = part.float()
        squares = self._ranks.all_reduce(wide.square().sum(-1, keepdim=True))
        return (wide * torch.rsqrt(squares / (size * part.shape[1]) + eps)).to(part.dtype) * weight
