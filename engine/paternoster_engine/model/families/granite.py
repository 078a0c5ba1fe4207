"""Granite 3 (IBM, 2024): a Llama with a scale for embeddings, scores, residuals and logits."""

from dataclasses import replace

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.fields import Fields


def _describe_granite(
    config: ModelConfig, embedding: float, residual: float, attention: float, logits: float
) -> ModelConfig:
    block = replace(config.block, residual_scale=residual, attention_scale=attention)
    return replace(config, block=block, embedding_scale=embedding, logit_scale=1 / logits)


def _from_hf(config: ModelConfig, fields: Fields) -> ModelConfig:
    keys = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
    return _describe_granite(config, *(fields.read_positive(key, default=1.0) for key in keys))


def _from_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    attention = fields.read_positive("attention.scale", default=config.head_dim**-0.5)
    embedding, residual, logits = (
        fields.read_positive(key, default=1.0) for key in ("embedding_scale", "residual_scale", "logit_scale")
    )
    return _describe_granite(config, embedding, residual, attention, logits)


GRANITE = Family(_from_hf, _from_gguf, interleaved=True)
