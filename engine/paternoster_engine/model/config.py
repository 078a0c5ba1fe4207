"""A model's shape, read from GGUF metadata or from a Hugging Face ``config.json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.rope_scaling import RopeScaling, Yarn, from_gguf, from_hf

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
    rope_scaling: RopeScaling | None = None
    """None for the plain rotary embedding."""

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], name: str) -> "ModelConfig":
        """From a parsed ``config.json``; ``name`` is used where the file has none."""
        fields = Fields(config, "config.json")
        rope = Fields(fields.mapping("rope_parameters") or fields.mapping("rope_scaling"), "config.json")
        for key in ("attention_bias", "mlp_bias"):
            if fields.flag(key):
                raise UnsupportedModelError(f"{key} is true in config.json: only projections without bias are built in")
        hidden = fields.whole("hidden_size", LARGEST_SIZE)
        heads = fields.whole("num_attention_heads", hidden)
        context = fields.whole("max_position_embeddings", LONGEST_CONTEXT)
        _refuse_windows(fields, context)
        scaling = from_hf(rope, context)
        if isinstance(scaling, Yarn):
            # As vLLM has it: files are told the stretched length by their rope_parameters alone.
            context = max(context, int(scaling.original * scaling.factor))
            if context > LONGEST_CONTEXT:
                raise rope.refusal("factor", scaling.factor, f"at most {LONGEST_CONTEXT / scaling.original:g}")
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
            context_length=context,
            rope_theta=rope.positive("rope_theta", default=fields.positive("rope_theta", default=10_000.0)),
            rms_norm_eps=fields.positive("rms_norm_eps"),
            tied_embeddings=fields.flag("tie_word_embeddings"),
            rope_scaling=scaling,
        )

    @classmethod
    def from_gguf(
        cls, metadata: Mapping[str, Any], tensor_names: frozenset[str], name: str, rope_divisors: Sequence[float] = ()
    ) -> "ModelConfig":
        """From GGUF key-value ``metadata``; keys as in the GGUF specification. ``rope_divisors``: ``rope_freqs``."""
        fields = Fields(metadata, "the GGUF file")
        arch = fields.text("general.architecture")
        hidden = fields.whole(f"{arch}.embedding_length", LARGEST_SIZE)
        heads = fields.whole(f"{arch}.attention.head_count", hidden)
        vocabulary = fields.whole(f"{arch}.vocab_size", LARGEST_SIZE, default=0)
        head_dim = _head_dim(fields, f"{arch}.attention.key_length", hidden // heads)
        context = fields.whole(f"{arch}.context_length", LONGEST_CONTEXT)
        if rope_divisors and len(rope_divisors) != head_dim // 2:
            raise fields.refusal("the size of rope_freqs.weight", len(rope_divisors), f"{head_dim // 2}, half a head")
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
            head_dim=head_dim,
            context_length=context,
            rope_theta=fields.positive(f"{arch}.rope.freq_base", default=10_000.0),
            rms_norm_eps=fields.positive(f"{arch}.attention.layer_norm_rms_epsilon"),
            tied_embeddings="output.weight" not in tensor_names,
            rope_scaling=from_gguf(fields, arch, rope_divisors, context),
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


def _refuse_windows(fields: Fields, context: int) -> None:
    """Mistral's window counts where it is there, Qwen's where it is asked for; one that no request outgrows is none."""
    window = fields.whole("sliding_window", LARGEST_SIZE, default=context)
    if fields.flag("use_sliding_window", default=fields.text("model_type") == "mistral") and window < context:
        raise UnsupportedModelError(
            f"sliding_window is {window} in config.json: must be null or at least {context}, the context, as only "
            "attention to all tokens is built in"
        )
