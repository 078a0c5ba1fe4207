"""What a model is: its sizes, and what its layers do. Families fill it in from a file's own fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from paternoster_engine.model.layer_groups import LayerGroup, layer_groups
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.rope_scaling import RopeScaling
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults

LARGEST_SIZE = 2**31 - 1
"""Largest size that the tensors' shapes are compared with."""
LARGEST_HEAD = 512
"""Numbers of a key: the scratch that attention keeps a head grows with it, and no tensor's size bounds it."""
LONGEST_CONTEXT = 2**24
"""Tokens: the rotary embedding is worked out for each position of it."""


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding (arXiv 2104.09864)."""

    theta: float
    scaling: RopeScaling | None = None
    """None for the plain one."""
    dim: int | None = None
    """Numbers of a head that are rotated, the first ones; None for all."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of an MLP (arXiv 2101.03961)."""

    count: int
    active: int
    """That a token goes through, those with the best scores."""
    intermediate_size: int
    """Intermediate size of each expert."""
    normalized: bool
    """Whether the shares of the active ones are made to sum to 1."""


@dataclass(frozen=True, slots=True)
class Layer:
    """In what a layer may differ from its neighbours."""

    rope: Rope | None
    """None: the causal mask alone distinguishes tokens (NoPE, arXiv 2305.19466)."""
    window: int | None = None
    """A token sees itself and ``window - 1`` before it, and of a bidirectional model those at most ``window`` from it;
    None: all.
    """
    experts: Experts | None = None
    """None for one MLP."""


@dataclass(frozen=True, slots=True)
class Block:
    """What all layers of a model have in common, beside sizes; the defaults are Llama's."""

    norms: Literal["before", "after", "around"] = "before"
    """Where a norm stands: before attention and MLP, after them and before the sum, or both."""
    head_norm: Literal["none", "each", "all"] = "none"
    """Norm of queries and keys before they are rotated: one for each head, or one for all heads together."""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    activation: Literal["silu", "gelu", "clamped_swiglu"] = "silu"
    """Activation of the gate; ``gelu`` in its tanh form; the last is gpt-oss's."""
    router_bias: bool = False
    sinks: bool = False
    """Each query head has one more key to look at, whose score is learnt and whose value is nothing."""
    attention_scale: float | None = None
    """Scale of scores; None for one over the root of ``head_dim``."""
    attention_softcap: float | None = None
    """Scores become ``softcap * tanh(score / softcap)``."""
    residual_scale: float = 1.0
    """Scale of what attention and MLP add."""
    bidirectional: str | None = None
    """The field and value by which a token sees its whole text, such as "is_causal is False"; None: what is before it.
    """


class ModelDescription(Protocol):
    """What the API reports of any model, whatever runs it."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def pooling(self) -> Pooling | None:
        """None for a model that generates."""
        ...

    @property
    def sampling_defaults(self) -> SamplingDefaults: ...


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the weights' shapes, the KV pool and the forward pass are derived from."""

    architecture: str
    """``model_type`` of a config.json, ``general.architecture`` of a GGUF file."""
    name: str
    """Name of the file, for logs."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    """Tokens the rotary embedding was trained for: the longest ``max_model_len`` allowed."""
    rope_theta: float
    rms_norm_eps: float
    tied_embeddings: bool
    """The output projection is the embedding table."""
    rope_scaling: RopeScaling | None = None
    """None for the plain rotary embedding."""
    rotary_dim: int | None = None
    """Numbers of a head that are rotated, see :attr:`Rope.dim`."""
    block: Block = Block()
    layer_kinds: tuple[Layer, ...] = ()
    """One a layer; empty where all are :attr:`layers`' default."""
    embedding_scale: float = 1.0
    """Scale of the embeddings."""
    logit_scale: float = 1.0
    """Scale of the logits, before the cap."""
    logit_softcap: float | None = None
    """Logits become ``softcap * tanh(logit / softcap)``."""
    pooling: Pooling | None = None
    """For a model whose hidden states are wanted: it has no output projection then. None for one that generates."""
    sampling_defaults: SamplingDefaults = NO_DEFAULTS
    """The publisher's sampling settings, for requests without their own."""

    @property
    def layers(self) -> Sequence[Layer]:
        """Each layer's own, first to last."""
        return self.layer_kinds or (Layer(self.rope),) * self.num_layers

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """Which layers share the blocks of the KV pool."""
        return layer_groups(tuple(layer.window for layer in self.layers), self.context_length)

    @property
    def kv_windows(self) -> tuple[int | None, ...]:
        """The window of each of :attr:`layer_groups`, as the scheduler needs them."""
        return tuple(group.window for group in self.layer_groups)

    @property
    def rope(self) -> Rope:
        """Rotary embedding of layers that have no other."""
        return Rope(self.rope_theta, self.rope_scaling, self.rotary_dim)
