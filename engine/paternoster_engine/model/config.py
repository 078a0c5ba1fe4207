"""A model's shape, read from GGUF metadata or from a Hugging Face ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError


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
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        _plain_rope(rope.get("rope_type", rope.get("type", "default")))
        for key in ("attention_bias", "mlp_bias"):
            if config.get(key):
                raise UnsupportedModelError(f"{key} is true in config.json: only projections without bias are built in")
        if config.get("use_sliding_window"):
            raise UnsupportedModelError(
                "use_sliding_window is true in config.json: only attention to all tokens is built in"
            )
        try:
            return cls(
                architecture=config["model_type"],
                name=config.get("_name_or_path") or name,
                vocab_size=config["vocab_size"],
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_layers=config["num_hidden_layers"],
                num_heads=config["num_attention_heads"],
                num_kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
                head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
                context_length=config["max_position_embeddings"],
                rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
                rms_norm_eps=config["rms_norm_eps"],
                tied_embeddings=config.get("tie_word_embeddings", False),
            )
        except KeyError as error:
            raise UnsupportedModelError(f"config.json has no field {error}") from error

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tensor_names: frozenset[str], name: str) -> "ModelConfig":
        """From GGUF key-value ``metadata``; keys as in the GGUF specification."""
        arch = metadata["general.architecture"]
        _plain_rope(metadata.get(f"{arch}.rope.scaling.type", "none"))
        if "rope_freqs.weight" in tensor_names:
            _plain_rope("rope_freqs.weight")
        try:
            heads = metadata[f"{arch}.attention.head_count"]
            hidden = metadata[f"{arch}.embedding_length"]
            return cls(
                architecture=arch,
                name=metadata.get("general.name") or name,
                vocab_size=metadata.get(f"{arch}.vocab_size") or len(metadata["tokenizer.ggml.tokens"]),
                hidden_size=hidden,
                intermediate_size=metadata[f"{arch}.feed_forward_length"],
                num_layers=metadata[f"{arch}.block_count"],
                num_heads=heads,
                num_kv_heads=metadata.get(f"{arch}.attention.head_count_kv", heads),
                head_dim=metadata.get(f"{arch}.attention.key_length", hidden // heads),
                context_length=metadata[f"{arch}.context_length"],
                rope_theta=metadata.get(f"{arch}.rope.freq_base", 10_000.0),
                rms_norm_eps=metadata[f"{arch}.attention.layer_norm_rms_epsilon"],
                tied_embeddings="output.weight" not in tensor_names,
            )
        except KeyError as error:
            raise UnsupportedModelError(f"the GGUF file has no field {error}") from error


def _plain_rope(kind: str) -> None:
    if kind not in ("default", "none"):
        raise UnsupportedModelError(f"rotary embedding scaling is {kind!r}: only unscaled embeddings are built in")
