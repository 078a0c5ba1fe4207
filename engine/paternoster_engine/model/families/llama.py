"""Llama 2 to 3.3 and SmolLM2 (arXiv 2407.21783), Mistral (arXiv 2310.06825), Mixtral (arXiv 2401.04088)."""

from paternoster_engine.model.config import Experts, ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.layer_kinds import MOST_EXPERTS, build_windowed, with_experts
from paternoster_engine.model.fields import Fields


def _describe_mistral(config: ModelConfig, fields: Fields) -> ModelConfig:
    return build_windowed(config, fields, lambda layer: True)


def _describe_mixtral(config: ModelConfig, fields: Fields) -> ModelConfig:
    count, active = (fields.read_integer(key, MOST_EXPERTS) for key in ("num_local_experts", "num_experts_per_tok"))
    return _describe_experts(_describe_mistral(config, fields), fields, count, active)


def _llama_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Mixtral's files say that they are a Llama with experts."""
    count = fields.read_integer("expert_count", MOST_EXPERTS, least=0, default=0)
    return (
        config
        if not count
        else _describe_experts(config, fields, count, fields.read_integer("expert_used_count", MOST_EXPERTS))
    )


def _describe_experts(config: ModelConfig, fields: Fields, count: int, active: int) -> ModelConfig:
    experts = Experts(count, active, config.intermediate_size, normalized=True)
    return with_experts(config, fields, experts, [True] * config.num_layers)


LLAMA = Family(from_gguf=_llama_gguf, interleaved=True)
MISTRAL = Family(_describe_mistral, from_gguf=None)
"""GGUF files say that they are a Llama."""
MIXTRAL = Family(
    _describe_mixtral,
    from_gguf=None,
    names={"mlp": "block_sparse_moe", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
)
