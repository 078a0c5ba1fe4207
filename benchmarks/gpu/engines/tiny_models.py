"""A tiny model of each family, by a config.json as the family's files have it: what the engine's oracle runs."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.read import config_from_hf

SIZES: Mapping[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0, "tie_word_embeddings": False,
}  # fmt: skip
OWN: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "mistral": {"sliding_window": 24},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {},
    "qwen3": {"tie_word_embeddings": True},
    "qwen3_moe": {
        "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True,
        "attention_bias": True, "mlp_only_layers": [1],
    },
    "gemma2": {
        "sliding_window": 20, "query_pre_attn_scalar": 25, "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma3_text": {
        "sliding_window": 20, "sliding_window_pattern": 2, "query_pre_attn_scalar": 25, "rope_theta": 1e6,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "phi3": {"partial_rotary_factor": 0.75},
    "granite": {
        "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0,
    },
    "gpt_oss": {
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 20,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 64,
        },
    },
    "smollm3": {"no_rope_layer_interval": 2},
    "olmo2": {},
    "olmo3": {
        "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
}  # fmt: skip
"""What a family has of its own -> by ``model_type``."""


def tiny_models() -> list[ModelConfig]:
    """One of each family."""
    return [config_from_hf({**SIZES, **own, "model_type": family}, f"tiny {family}") for family, own in OWN.items()]
