"""OLMo 2 (arXiv 2501.00656): norms behind attention and MLP, and one over all heads of queries and of keys."""

from dataclasses import replace

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.fields import Fields


def _describe_olmo2(config: ModelConfig, fields: Fields) -> ModelConfig:
    return replace(config, block=replace(config.block, norms="after", head_norm="all"))


OLMO2 = Family(
    _describe_olmo2,
    _describe_olmo2,
    names={"attention_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm"},
)
