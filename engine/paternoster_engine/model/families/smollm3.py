"""SmolLM3 (Hugging Face, 2025): a Llama in which every fourth layer does without a rotary embedding."""

from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, Layer, ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.fields import Fields


def _from_hf(config: ModelConfig, fields: Fields) -> ModelConfig:
    interval = fields.read_integer("no_rope_layer_interval", LARGEST_SIZE, default=4)
    kinds = fields.read_integers("no_rope_layers", 1, default=None)
    if kinds is None:
        kinds = [int((layer + 1) % interval != 0) for layer in range(config.num_layers)]
    if len(kinds) != config.num_layers:
        raise fields.describe_refusal(
            "the length of no_rope_layers", len(kinds), f"{config.num_layers}, the number of layers"
        )
    if fields.read_flag("use_sliding_window"):
        raise fields.describe_refusal("use_sliding_window", True, "false: no window of SmolLM3 is built in")
    fields.pass_over("sliding_window", "max_window_layers")
    # The list says which layers do have one.
    return replace(config, layer_kinds=tuple(Layer(config.rope if rotated else None) for rotated in kinds))


def _from_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    """GGUF files do not say: it is every fourth."""
    layers = range(config.num_layers)
    return replace(config, layer_kinds=tuple(Layer(config.rope if (i + 1) % 4 else None) for i in layers))


SMOLLM3 = Family(_from_hf, _from_gguf, interleaved=True, defaults={"tie_word_embeddings": True})
