"""Whether a model's tensors have the shapes that its sizes ask for, before the first is read."""

from collections.abc import Iterator
from typing import Protocol

from paternoster_engine.model.config import Experts, ModelConfig
from paternoster_engine.model.errors import ModelError


class TensorShapes(Protocol):
    """The part of a checkpoint that this check reads."""

    @property
    def config(self) -> ModelConfig: ...

    def shape_of(self, name: str) -> tuple[int, ...]: ...


def check_shapes(checkpoint: TensorShapes) -> None:
    """Raises :class:`ModelError` for the first tensor that is missing or of another shape."""
    for name, expected in expected_shapes(checkpoint.config):
        shape = checkpoint.shape_of(name)
        if shape != expected:
            raise ModelError(f"{name} has the shape {list(shape)}: must be {list(expected)} by the model's own sizes")


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The decoder's name and the shape of every tensor that is loaded."""
    hidden = config.hidden_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    block = config.block
    layer: dict[str, tuple[int, ...]] = {}
    if block.norms != "after":
        layer |= {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if block.norms != "before":
        layer |= {"attention_post_norm.weight": (hidden,), "mlp_post_norm.weight": (hidden,)}
    if block.head_norm != "none":
        each = block.head_norm == "each"
        layer["self_attn.q_norm.weight"] = (config.head_dim if each else queries,)
        layer["self_attn.k_norm.weight"] = (config.head_dim if each else keys,)
    if block.sinks:
        layer["self_attn.sinks.weight"] = (config.num_heads,)
    for name, outputs, inputs, biased in (
        ("self_attn.q_proj", queries, hidden, block.qkv_bias),
        ("self_attn.k_proj", keys, hidden, block.qkv_bias),
        ("self_attn.v_proj", keys, hidden, block.qkv_bias),
        ("self_attn.o_proj", hidden, queries, block.out_bias),
    ):
        layer[f"{name}.weight"] = (outputs, inputs)
        if biased:
            layer[f"{name}.bias"] = (outputs,)
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for number, kind in enumerate(config.layers):
        prefix = f"model.layers.{number}."
        yield from ((prefix + name, shape) for name, shape in layer.items())
        yield from ((f"{prefix}mlp.{name}", shape) for name, shape in _mlp_shapes(config, kind.experts))
    yield "model.norm.weight", (hidden,)
    if not config.tied_embeddings and config.pooling is None:
        yield "lm_head.weight", (config.vocab_size, hidden)


def _mlp_shapes(config: ModelConfig, experts: Experts | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = config.hidden_size
    if experts is not None:
        yield "gate.weight", (experts.count, hidden)
        if config.block.router_bias:
            yield "gate.bias", (experts.count,)
    width = config.intermediate_size if experts is None else experts.intermediate_size
    prefixes = [""] if experts is None else [f"experts.{number}." for number in range(experts.count)]
    for prefix in prefixes:
        for name, outputs, inputs in (
            ("gate_proj", width, hidden),
            ("up_proj", width, hidden),
            ("down_proj", hidden, width),
        ):
            yield f"{prefix}{name}.weight", (outputs, inputs)
            if config.block.mlp_bias:
                yield f"{prefix}{name}.bias", (outputs,)
