"""Models as their publishers describe them: what is read of them, and how many parameters are loaded."""

import math
from typing import Any

import pytest

from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.read import config_from_hf
from paternoster_engine.model.rope_scaling import LinearScaling


def sizes(hidden: int, wide: int, layers: int, heads: int, kv_heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    values = dict(zip(names, (hidden, wide, layers, heads, kv_heads), strict=True))
    return {**values, "vocab_size": vocab, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-5, **more}


PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "Qwen2.5-7B": (sizes(3584, 18_944, 28, 28, 4, 152_064, model_type="qwen2"), 7.616),
    "Qwen3-30B-A3B": (
        sizes(
            2048, 6144, 48, 32, 4, 151_936, model_type="qwen3_moe", head_dim=128, num_experts=128,
            num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, mlp_only_layers=[],
        ),
        30.532,
    ),
    "Mixtral-8x7B": (
        sizes(4096, 14_336, 32, 32, 8, 32_000, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2),
        46.703,
    ),
    "Mistral-7B-v0.3": (sizes(4096, 14_336, 32, 32, 8, 32_768, model_type="mistral", sliding_window=None), 7.248),
    "Phi-4": (sizes(5120, 17_920, 40, 40, 10, 100_352, model_type="phi3", sliding_window=None), 14.66),
    "Gemma-2-9B": (
        sizes(3584, 14_336, 42, 16, 8, 256_000, model_type="gemma2", head_dim=256, sliding_window=4096), 9.242,
    ),
    "gpt-oss-20b": (
        sizes(
            2880, 2880, 24, 64, 8, 201_088, model_type="gpt_oss", head_dim=64, num_local_experts=32,
            num_experts_per_tok=4, sliding_window=128,
        ),
        20.915,
    ),
    "SmolLM3-3B": (sizes(2048, 11_008, 36, 16, 4, 128_256, model_type="smollm3"), 3.075),
    "OLMo-2-7B": (sizes(4096, 11_008, 32, 32, 32, 100_352, model_type="olmo2"), 7.299),
    "Olmo-3-1025-7B": (sizes(4096, 11_008, 32, 32, 32, 100_278, model_type="olmo3"), 7.298),
    "Granite-3.1-8B": (
        sizes(4096, 12_800, 40, 32, 8, 49_155, model_type="granite", tie_word_embeddings=True), 8.171,
    ),
}  # fmt: skip


def billions(config: ModelConfig) -> float:
    return sum(math.prod(shape) for _, shape in expected_shapes(config)) / 1e9


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_parameters_are_loaded_as_were_published(name: str) -> None:
    values, published = PUBLISHED[name]
    assert billions(config_from_hf(values, name)) == pytest.approx(published, abs=0.0006)


def test_gemma_3_leaves_most_to_its_defaults() -> None:
    """The text of gemma-3-12b-it, whose config.json has what differs from transformers' own."""
    text = {
        "hidden_size": 3840, "intermediate_size": 15_360, "model_type": "gemma3_text", "num_attention_heads": 16,
        "num_hidden_layers": 48, "num_key_value_heads": 8, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }  # fmt: skip
    config = config_from_hf({"model_type": "gemma3", "text_config": text}, "gemma-3-12b-it")
    assert billions(config) == pytest.approx(11.766, abs=0.0006)
    assert (config.context_length, config.head_dim, config.tied_embeddings) == (131_072, 256, True)
    full, local = config.layers[5], config.layers[4]
    assert (full.window, full.rope) == (None, config.rope)
    assert config.rope.scaling == LinearScaling(8.0)
    assert local.window == 1024
    assert local.rope is not None
    assert (local.rope.theta, local.rope.scaling) == (10_000.0, None)
    assert [layer.window is None for layer in config.layers].count(True) == 8
