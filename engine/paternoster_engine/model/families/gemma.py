"""Gemma 2 (arXiv 2408.00118) and the text of Gemma 3 (arXiv 2503.19786): norms around, windows between full layers."""

from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, ModelConfig, Rope
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.layer_kinds import build_windowed, read_local_rope, with_window
from paternoster_engine.model.fields import Fields

LOCAL_THETA = 10_000.0
NAMES = {
    "attention_post_norm": "post_attention_layernorm",
    "post_attention_layernorm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
WITHOUT_HEAD_SIZE = {46: "gemma2", 62: "gemma3"}
"""Layers of the 27B models, whose scores are scaled by what a head would have of the hidden size."""


def _describe_gemma(config: ModelConfig, scale: float, head_norm: bool) -> ModelConfig:
    block = replace(
        config.block,
        norms="around",
        head_norm="each" if head_norm else "none",
        activation="gelu",
        attention_scale=scale,
    )
    return replace(config, block=block, embedding_scale=config.hidden_size**0.5)


def _cap_logits(config: ModelConfig, attention: float | None, logits: float | None) -> ModelConfig:
    return replace(config, block=replace(config.block, attention_softcap=attention), logit_softcap=logits)


def _describe_gemma2(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = _describe_gemma(
        config, fields.read_positive("query_pre_attn_scalar", default=256.0) ** -0.5, head_norm=False
    )
    caps = (fields.read_positive(key, default=None) for key in ("attn_logit_softcapping", "final_logit_softcapping"))
    return build_windowed(_cap_logits(config, *caps), fields, lambda layer: layer % 2 == 0)


def _describe_gemma3(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = _describe_gemma(
        config, fields.read_positive("query_pre_attn_scalar", default=256.0) ** -0.5, head_norm=True
    )
    caps = (fields.read_positive(key, default=None) for key in ("attn_logit_softcapping", "final_logit_softcapping"))
    if fields.read_flag("use_bidirectional_attention"):
        config, fields = _see_whole_texts(config, fields)
    pattern = fields.read_integer("sliding_window_pattern", LARGEST_SIZE, default=6)
    local = read_local_rope(fields, fields.read_positive("rope_local_base_freq", default=LOCAL_THETA))
    return build_windowed(_cap_logits(config, *caps), fields, lambda layer: (layer + 1) % pattern != 0, local=local)


def _see_whole_texts(config: ModelConfig, fields: Fields) -> tuple[ModelConfig, Fields]:
    """Divide a window between what is before a token and what is after it, as EmbeddingGemma (arXiv 2509.20354)."""
    # transformers includes one token more where is_causal is false as well.
    window = fields.read_integer("sliding_window", LARGEST_SIZE, default=4096) // 2 + bool(config.block.bidirectional)
    bidirectional = "config.json: use_bidirectional_attention is True"
    block = replace(config.block, bidirectional=bidirectional)
    return replace(config, block=block), fields.replace_values({"sliding_window": window})


def _gguf_scale(config: ModelConfig) -> float:
    """GGUF files do not say: llama.cpp has the one size of each that differs by its layers."""
    size = config.head_dim
    if WITHOUT_HEAD_SIZE.get(config.num_layers) == config.architecture:
        size = config.hidden_size // config.num_heads
    return float(size**-0.5)


def _gemma2_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = _describe_gemma(config, _gguf_scale(config), head_norm=False)
    attention = fields.read_positive("attn_logit_softcapping", default=50.0)
    config = _cap_logits(config, attention, fields.read_positive("final_logit_softcapping", default=30.0))
    window = fields.read_integer("attention.sliding_window", LARGEST_SIZE, default=4096)
    return with_window(config, window, [layer % 2 == 0 for layer in range(config.num_layers)])


def _gemma3_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = _describe_gemma(config, _gguf_scale(config), head_norm=True)
    window = fields.read_integer("attention.sliding_window", LARGEST_SIZE)
    pattern = fields.read_integer("attention.sliding_window_pattern", LARGEST_SIZE, default=6)
    slides = [(layer + 1) % pattern != 0 for layer in range(config.num_layers)]
    return with_window(config, window, slides, Rope(fields.read_positive("rope.freq_base_swa", default=LOCAL_THETA)))


_DEFAULTS = {"tie_word_embeddings": True, "head_dim": 256, "rms_norm_eps": 1e-6}
GEMMA2 = Family(
    _describe_gemma2,
    _gemma2_gguf,
    names=NAMES,
    norm_offset=1.0,
    defaults={**_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
)
GEMMA3 = Family(
    _describe_gemma3,
    _gemma3_gguf,
    names=NAMES,
    norm_offset=1.0,
    defaults={
        **_DEFAULTS,
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131_072,
        "rope_theta": 1e6,
    },
)
