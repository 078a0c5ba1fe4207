"""A model's shape, read from GGUF metadata or from a Hugging Face ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields

LARGEST_SIZE = 2**31 - 1
"""Of what the tensors' shapes are compared with."""
LONGEST_CONTEXT = 2**21
"""Tokens; the rotary table has a row for each before anything else shows how many there can be."""
LARGEST_HEAD = 512


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a decoder-only transformer."""

    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rope_theta: float
    rms_norm_eps: float
    tied_embeddings: bool
    """The output projection is the embedding table."""

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], name: str) -> "ModelConfig":
        """From a parsed ``config.json``; ``name`` is used where the file has none."""
        fields = Fields(config, "config.json")
        rope = Fields(fields.mapping("rope_parameters") or fields.mapping("rope_scaling"), "config.json")
        _plain_rope(rope.text("rope_type", default=rope.text("type", default="default")))
        for key in ("attention_bias", "mlp_bias"):
            if fields.flag(key):
                raise UnsupportedModelError(f"{key} is true in config.json: only projections without bias are built in")
        if fields.flag("use_sliding_window"):
            raise UnsupportedModelError(
                "use_sliding_window is true in config.json: only attention to all tokens is built in"
            )
        hidden = fields.whole("hidden_size", LARGEST_SIZE)
        heads = fields.whole("num_attention_heads", hidden)
        return cls(
            architecture=fields.text("model_type"),
            name=fields.text("_name_or_path", default="") or name,
            vocab_size=fields.whole("vocab_size", LARGEST_SIZE),
            hidden_size=hidden,
            intermediate_size=fields.whole("intermediate_size", LARGEST_SIZE),
            num_layers=fields.whole("num_hidden_layers", LARGEST_SIZE),
            num_heads=heads,
            num_kv_heads=_key_heads(fields, "num_key_value_heads", heads),
            head_dim=_head_dim(fields, "head_dim", hidden // heads),
            context_length=fields.whole("max_position_embeddings", LONGEST_CONTEXT),
            rope_theta=rope.positive("rope_theta", default=fields.positive("rope_theta", default=10_000.0)),
            rms_norm_eps=fields.positive("rms_norm_eps"),
            tied_embeddings=fields.flag("tie_word_embeddings"),
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tensor_names: frozenset[str], name: str) -> "ModelConfig":
        """From GGUF key-value ``metadata``; keys as in the GGUF specification."""
        fields = Fields(metadata, "the GGUF file")
        arch = fields.text("general.architecture")
        _plain_rope(fields.text(f"{arch}.rope.scaling.type", default="none"))
        if "rope_freqs.weight" in tensor_names:
            _plain_rope("rope_freqs.weight")
        hidden = fields.whole(f"{arch}.embedding_length", LARGEST_SIZE)
        heads = fields.whole(f"{arch}.attention.head_count", hidden)
        vocabulary = fields.whole(f"{arch}.vocab_size", LARGEST_SIZE, default=0)
        return cls(
            architecture=arch,
            name=fields.text("general.name", default="") or name,
            vocab_size=vocabulary or len(fields.texts("tokenizer.ggml.tokens")),
            hidden_size=hidden,
            intermediate_size=fields.whole(f"{arch}.feed_forward_length", LARGEST_SIZE),
            # Each layer has tensors of its own; the names of all layers are made before the first is looked for.
            num_layers=fields.whole(f"{arch}.block_count", max(1, len(tensor_names))),
            num_heads=heads,
            num_kv_heads=_key_heads(fields, f"{arch}.attention.head_count_kv", heads),
            head_dim=_head_dim(fields, f"{arch}.attention.key_length", hidden // heads),
            context_length=fields.whole(f"{arch}.context_length", LONGEST_CONTEXT),
            rope_theta=fields.positive(f"{arch}.rope.freq_base", default=10_000.0),
            rms_norm_eps=fields.positive(f"{arch}.attention.layer_norm_rms_epsilon"),
            tied_embeddings="output.weight" not in tensor_names,
        )


def _key_heads(fields: Fields, key: str, heads: int) -> int:
    count = fields.whole(key, heads, default=heads)
    if heads % count:
        raise fields.refusal(key, count, f"a divisor of {heads}, the number of query heads")
    return count


def _head_dim(fields: Fields, key: str, default: int) -> int:
    size = fields.whole(key, LARGEST_HEAD, default=default)
    if size % 2 or not 0 < size <= LARGEST_HEAD:
        raise fields.refusal(f"the size of a head ({key})", size, f"an even number up to {LARGEST_HEAD}")
    return size


def _plain_rope(kind: str) -> None:
    if kind not in ("default", "none"):
        raise UnsupportedModelError(f"rotary embedding scaling is {kind!r}: only unscaled embeddings are built in")
