"""Phi-3, Phi-4 and their small ones (arXiv 2404.14219, 2412.08905): fused matrices, heads rotated in part."""

from paternoster_engine.model.config import LARGEST_SIZE, ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.layer_kinds import build_windowed, with_window
from paternoster_engine.model.fields import Fields


def _from_hf(config: ModelConfig, fields: Fields) -> ModelConfig:
    return build_windowed(config, fields, lambda layer: True)


def _from_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    window = fields.read_integer("attention.sliding_window", LARGEST_SIZE, default=None)
    return config if window is None else with_window(config, window, [True] * config.num_layers)


PHI3 = Family(
    _from_hf,
    _from_gguf,
    fused={
        "q_proj": "qkv_proj",
        "k_proj": "qkv_proj",
        "v_proj": "qkv_proj",
        "gate_proj": "gate_up_proj",
        "up_proj": "gate_up_proj",
    },
)
