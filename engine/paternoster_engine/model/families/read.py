"""The fields that all families have, from a Hugging Face ``config.json`` or GGUF metadata."""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_engine.model.config import LARGEST_HEAD, LARGEST_SIZE, LONGEST_CONTEXT, Block, ModelConfig
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.families.registry import find_family
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.rope_scaling import Divided, RopeScaling, from_gguf, from_hf
from paternoster_engine.model.unread_fields import CONFIG, GGUF, RecordedFields, refuse_unread

MOST_LAYERS = 2**12
"""Many times the deepest known."""
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu"}
"""Names in ``config.json`` -> ours."""
NOT_CAUSAL = "config.json: is_causal is False"


def config_from_hf(values: Mapping[str, Any], name: str) -> ModelConfig:
    """From a parsed ``config.json``; ``name`` is used where the file has none.

    Raises :class:`UnsupportedModelError` naming the field.
    """
    values = RecordedFields.wrap_fields(values)
    architecture = Fields(values, "config.json").read_text("model_type")
    family = find_family(architecture)
    inner = Fields(values, "config.json").read_mapping("text_config")
    fields = Fields(inner or values, "config.json").with_defaults(family.defaults)
    hidden = fields.read_integer("hidden_size", LARGEST_SIZE)
    heads = fields.read_integer("num_attention_heads", hidden)
    head_dim = _head_dim(fields, "head_dim", hidden // heads)
    context = fields.read_integer("max_position_embeddings", LONGEST_CONTEXT)
    rope = _rope_fields(fields)
    scaling = from_hf(rope, context)
    rotary_dim = _rotary_dim(rope, fields, head_dim)
    if isinstance(scaling, Divided) and len(scaling.divisors) != (rotary_dim or head_dim) // 2:
        half = (rotary_dim or head_dim) // 2
        raise rope.describe_refusal(
            "the length of short_factor", len(scaling.divisors), f"{half}, half of what is rotated"
        )
    attention_bias = fields.read_flag("attention_bias")
    activation = fields.read_text("hidden_activation", default=fields.read_text("hidden_act", default="silu"))
    if activation not in ACTIVATIONS:
        raise fields.describe_refusal("hidden_act", activation, f"one of {', '.join(ACTIVATIONS)}")
    # Of a model that takes images as well, either place may say it.
    places = (fields, Fields(values, "config.json"))
    bidirectional = None if all(place.read_flag("is_causal", default=True) for place in places) else NOT_CAUSAL
    config = ModelConfig(
        architecture=architecture,
        name=fields.read_text("_name_or_path", default="") or name,
        vocab_size=fields.read_integer("vocab_size", LARGEST_SIZE),
        hidden_size=hidden,
        intermediate_size=fields.read_integer("intermediate_size", LARGEST_SIZE),
        num_layers=fields.read_integer("num_hidden_layers", MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=_key_heads(fields, "num_key_value_heads", heads),
        head_dim=head_dim,
        context_length=_find_reach(scaling, context, rope),
        rope_theta=rope.read_positive("rope_theta", default=fields.read_positive("rope_theta", default=10_000.0)),
        rms_norm_eps=fields.read_positive("rms_norm_eps"),
        tied_embeddings=fields.read_flag("tie_word_embeddings"),
        rope_scaling=scaling,
        rotary_dim=rotary_dim,
        block=Block(
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            mlp_bias=fields.read_flag("mlp_bias"),
            activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            bidirectional=bidirectional,
        ),
    )
    config = family.from_hf(config, fields)
    refuse_unread(values, CONFIG)
    return config


def config_from_gguf(
    metadata: Mapping[str, Any], tensor_names: frozenset[str], name: str, rope_divisors: Sequence[float] = ()
) -> ModelConfig:
    """From GGUF key-value ``metadata``; keys as in the GGUF specification. ``rope_divisors``: of frequencies."""
    metadata = RecordedFields.wrap_fields(metadata)
    architecture = Fields(metadata, "the GGUF file").read_text("general.architecture")
    family = find_family(architecture)
    if family.from_gguf is None:
        raise UnsupportedModelError(f"model architecture {architecture!r}: is read from safetensors alone")
    fields = Fields(metadata, "the GGUF file", f"{architecture}.")
    hidden = fields.read_integer("embedding_length", LARGEST_SIZE)
    heads = fields.read_integer("attention.head_count", hidden)
    vocabulary = fields.read_integer("vocab_size", LARGEST_SIZE, default=0)
    head_dim = _head_dim(fields, "attention.key_length", hidden // heads)
    if (size := fields.read_integer("attention.value_length", LARGEST_HEAD, default=head_dim)) != head_dim:
        raise fields.describe_refusal("attention.value_length", size, f"{head_dim}, the size of a key")
    context = fields.read_integer("context_length", LONGEST_CONTEXT)
    turned = fields.read_integer("rope.dimension_count", head_dim, default=head_dim)
    if rope_divisors and len(rope_divisors) != turned // 2:
        raise UnsupportedModelError(
            f"the size of rope_freqs.weight is {len(rope_divisors)}: must be {turned // 2}, half of what is rotated"
        )
    scaling = from_gguf(fields, rope_divisors, context, long_rope="rope_freqs.weight" not in tensor_names)
    general = Fields(metadata, "the GGUF file")
    causal = fields.read_flag("attention.causal", default=True)
    config = ModelConfig(
        architecture=architecture,
        name=general.read_text("general.name", default="") or name,
        vocab_size=vocabulary or len(general.read_texts("tokenizer.ggml.tokens")),
        hidden_size=hidden,
        intermediate_size=fields.read_integer("feed_forward_length", LARGEST_SIZE),
        # Every layer has tensors in the file.
        num_layers=fields.read_integer("block_count", min(MOST_LAYERS, max(1, len(tensor_names)))),
        num_heads=heads,
        num_kv_heads=_key_heads(fields, "attention.head_count_kv", heads),
        head_dim=head_dim,
        context_length=scaling.find_reach(context) if isinstance(scaling, Divided) else context,
        rope_theta=fields.read_positive("rope.freq_base", default=10_000.0),
        rms_norm_eps=fields.read_positive("attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in tensor_names,
        rope_scaling=scaling,
        rotary_dim=None if turned == head_dim else turned,
        block=Block(
            qkv_bias="blk.0.attn_q.bias" in tensor_names,
            out_bias="blk.0.attn_output.bias" in tensor_names,
            mlp_bias="blk.0.ffn_up.bias" in tensor_names,
            bidirectional=None if causal else f"the GGUF file: {architecture}.attention.causal is False",
        ),
    )
    config = family.from_gguf(config, fields)
    if not causal and any(layer.window for layer in config.layers):
        # llama.cpp bounds such a window on one side alone.
        raise fields.describe_refusal("attention.causal", False, "true for a model with attention windows")
    refuse_unread(metadata, GGUF)
    return config


def _rope_fields(fields: Fields) -> Fields:
    """Fields of the rotary embedding; that of full attention where layers of other kinds have one of their own."""
    values = fields.read_mapping("rope_parameters") or fields.read_mapping("rope_scaling")
    if isinstance(full := values.get("full_attention"), Mapping):
        values = full
    # Phi has it beside, the others within.
    original = fields.read_integer("original_max_position_embeddings", LONGEST_CONTEXT, default=None)
    return Fields(values, "config.json").with_defaults({"original_max_position_embeddings": original})


def _find_reach(scaling: RopeScaling | None, context: int, rope: Fields) -> int:
    """Tokens that a scaled embedding is good for."""
    reach = context if scaling is None else scaling.find_reach(context)
    if reach > LONGEST_CONTEXT:
        raise rope.describe_refusal(
            "factor", rope.read_positive("factor"), f"so that the context is at most {LONGEST_CONTEXT}"
        )
    return reach


def _rotary_dim(rope: Fields, fields: Fields, head_dim: int) -> int | None:
    share = rope.read_positive(
        "partial_rotary_factor", default=fields.read_positive("partial_rotary_factor", default=1.0)
    )
    turned = int(head_dim * share)
    if not 0 < turned <= head_dim or turned % 2:
        raise rope.describe_refusal("partial_rotary_factor", share, f"so that an even number of {head_dim} is rotated")
    return None if turned == head_dim else turned


def _key_heads(fields: Fields, key: str, heads: int) -> int:
    count = fields.read_integer(key, heads, default=heads)
    if heads % count:
        raise fields.describe_refusal(key, count, f"a divisor of {heads}, the number of query heads")
    return count


def _head_dim(fields: Fields, key: str, default: int) -> int:
    size = fields.read_integer(key, LARGEST_HEAD, default=default)
    if size % 2 or not 0 < size <= LARGEST_HEAD:
        raise fields.describe_refusal(f"the size of a head ({key})", size, f"an even number up to {LARGEST_HEAD}")
    return size
