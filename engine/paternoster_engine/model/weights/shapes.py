"""Whether a model's tensors have the shapes that its sizes ask for, before the first is read."""

from collections.abc import Iterator
from typing import Protocol

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError


class Shaped(Protocol):
    """A checkpoint, as far as it is asked here."""

    @property
    def config(self) -> ModelConfig: ...

    def shape(self, name: str) -> tuple[int, ...]: ...


def check_shapes(checkpoint: Shaped) -> None:
    """Raises :class:`ModelError` for the first tensor that is missing or of another shape."""
    for name, expected in expected_shapes(checkpoint.config):
        shape = checkpoint.shape(name)
        if shape != expected:
            raise ModelError(f"{name} has the shape {list(shape)}: must be {list(expected)} by the model's own sizes")


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Hugging Face name and shape of every tensor that is loaded."""
    hidden, mlp = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (mlp, hidden),
        "mlp.up_proj": (mlp, hidden),
        "mlp.down_proj": (hidden, mlp),
    }
    if config.architecture == "qwen3":
        layer |= {"self_attn.q_norm": (config.head_dim,), "self_attn.k_norm": (config.head_dim,)}
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for number in range(config.num_layers):
        yield from ((f"model.layers.{number}.{name}.weight", shape) for name, shape in layer.items())
    yield "model.norm.weight", (hidden,)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
