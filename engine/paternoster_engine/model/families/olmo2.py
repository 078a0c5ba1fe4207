"""OLMo 2 (arXiv 2501.00656): norms behind attention and MLP, and one over all heads of queries and of keys.

OLMo 3 (arXiv 2512.13961) adds windows in three of four layers, whose rotary embedding is not scaled.
"""

from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.layer_kinds import build_windowed, read_local_rope
from paternoster_engine.model.fields import Fields

NAMES = {"attention_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm"}


def _describe_olmo2(config: ModelConfig, fields: Fields) -> ModelConfig:
    return replace(config, block=replace(config.block, norms="after", head_norm="all"))


def _olmo2_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    """llama.cpp writes OLMo 3 under the name of OLMo 2, with a window."""
    window = fields.read_integer("attention.sliding_window", LARGEST_SIZE, least=0, default=0)
    if window:
        raise fields.describe_refusal("attention.sliding_window", window, "absent: OLMo 3 is read from safetensors")
    return _describe_olmo2(config, fields)


def _describe_olmo3(config: ModelConfig, fields: Fields) -> ModelConfig:
    local = read_local_rope(fields, config.rope_theta)
    return build_windowed(_describe_olmo2(config, fields), fields, lambda layer: (layer + 1) % 4 != 0, local=local)


OLMO2 = Family(_describe_olmo2, _olmo2_gguf, names=NAMES)
OLMO3 = Family(
    _describe_olmo3,
    from_gguf=None,
    names=NAMES,
    defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096},
)
