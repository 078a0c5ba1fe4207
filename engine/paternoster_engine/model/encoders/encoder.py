"""An encoder-only transformer, described by its :class:`EncoderConfig`: post-norm, every text seen whole.

Texts lie behind one another in one matrix, so nothing is padded. Attention alone sees them as texts: those of one
length in one call. Products and attention are in the type asked for, sums of layers and norms in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from paternoster_engine.model.encoders.config import Activation, EncoderConfig
from paternoster_engine.model.encoders.dense import Dense
from paternoster_engine.model.layers.text_attention import attend_texts
from paternoster_engine.model.pooling import PoolingMode


@dataclass(frozen=True, slots=True)
class TextBatch:
    """The texts of one forward pass, shortest first, one after another."""

    token_ids: torch.Tensor
    """``[tokens]`` int64."""
    positions: torch.Tensor
    """``[tokens]`` int64: place of each token in its own text."""
    token_types: torch.Tensor
    """``[tokens]`` int64: 1 in the second of two texts that are compared, else 0."""
    lengths: Sequence[int]
    """Tokens of each text; ascending."""


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _EncoderLayer:
    qkv: Dense
    out: Dense
    attention_norm: _Norm
    up: Dense
    down: Dense
    mlp_norm: _Norm


class Encoder:
    """Weights and forward pass; holds no state of any request."""

    def __init__(
        self,
        config: EncoderConfig,
        tensor: Callable[[str], torch.Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """``tensor`` gives weights by the names of :meth:`EncoderConfig.shapes`; ``dtype``: of matrices."""

        def load(*names: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            tensors = [tensor(name).to(device=device, dtype=dtype) for name in names]
            return tensors[0] if len(tensors) == 1 else torch.cat(tensors)

        def load_dense(*names: str, activation: Activation | None = None, dtype: torch.dtype = dtype) -> Dense:
            weight, bias = (load(*(f"{n}.{part}" for n in names), dtype=dtype) for part in ("weight", "bias"))
            return Dense(weight, bias, activation)

        def load_norm(name: str) -> _Norm:
            return _Norm(load(f"{name}.weight"), load(f"{name}.bias"), config.norm_eps)

        def load_layer(prefix: str) -> _EncoderLayer:
            return _EncoderLayer(
                qkv=load_dense(*(f"{prefix}attention.self.{part}" for part in ("query", "key", "value"))),
                out=load_dense(f"{prefix}attention.output.dense"),
                attention_norm=load_norm(f"{prefix}attention.output.LayerNorm"),
                up=load_dense(f"{prefix}intermediate.dense", activation=config.activation),
                down=load_dense(f"{prefix}output.dense"),
                mlp_norm=load_norm(f"{prefix}output.LayerNorm"),
            )

        self.config = config
        self.device = device
        self._words = load("embeddings.word_embeddings.weight", dtype=dtype)
        self._positions = load("embeddings.position_embeddings.weight")[config.first_position :]
        self._types = load("embeddings.token_type_embeddings.weight")
        self._norm = load_norm("embeddings.LayerNorm")
        self._layers = [load_layer(f"encoder.layer.{number}.") for number in range(config.num_layers)]
        # Scores that are close still differ.
        self._head = None if config.head is None else [load_dense(name, dtype=torch.float32) for name in config.head]

    def forward(self, batch: TextBatch) -> torch.Tensor:
        """Hidden states ``[tokens, hidden]`` float32."""
        hidden = self._words[batch.token_ids] + self._positions[batch.positions] + self._types[batch.token_types]
        hidden = self._norm(hidden)
        for layer in self._layers:
            queries, keys, values = layer.qkv(hidden).unflatten(1, (3, self.config.num_heads, -1)).unbind(1)
            mixed = attend_texts(queries, keys, values, batch.lengths)
            hidden = layer.attention_norm(hidden + layer.out(mixed.flatten(1)))
            hidden = layer.mlp_norm(hidden + layer.down(layer.up(hidden)))
        return hidden

    def compute_vectors(self, batch: TextBatch) -> torch.Tensor:
        """``[texts, size]`` float32, in the order of ``batch``: pooled as the model does it, or its scores."""
        pooled = pool_texts(self.forward(batch), batch.lengths, self.config.pooling.mode)
        if self._head is not None:
            first, last = self._head
            score = last(torch.tanh(first(pooled)))
            return score if self.config.score == "none" else torch.sigmoid(score)
        return functional.normalize(pooled) if self.config.pooling.normalized else pooled


def pool_texts(hidden: torch.Tensor, lengths: Sequence[int], mode: PoolingMode) -> torch.Tensor:
    """``[texts, size]`` of the hidden states ``[tokens, size]`` of texts behind one another."""
    counts = torch.tensor(lengths, device=hidden.device)
    ends = counts.cumsum(0)
    match mode:
        case "cls":
            return hidden[ends - counts]
        case "last":
            return hidden[ends - 1]
        case "mean":
            text = torch.repeat_interleave(torch.arange(len(lengths), device=hidden.device), counts)
            sums = hidden.new_zeros(len(lengths), hidden.shape[1])
            return sums.index_add_(0, text, hidden) / counts.unsqueeze(1)
