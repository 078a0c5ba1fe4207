"""Qwen2, 2.5 (arXiv 2407.10671): biased queries, keys and values. Qwen3 (arXiv 2505.09388): normed heads, experts."""

from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, Experts, ModelConfig
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.layer_kinds import MOST_EXPERTS, build_windowed, with_experts
from paternoster_engine.model.fields import Fields


def _describe_qwen2(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = replace(config, block=replace(config.block, qkv_bias=True, out_bias=False))
    return _window_layers(config, fields)


def _describe_qwen3(config: ModelConfig, fields: Fields) -> ModelConfig:
    return _window_layers(_norm_heads(config, fields), fields)


def _norm_heads(config: ModelConfig, fields: Fields) -> ModelConfig:
    return replace(config, block=replace(config.block, head_norm="each"))


def _window_layers(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Windows count where the file enables them."""
    if not fields.read_flag("use_sliding_window"):
        fields.pass_over("sliding_window", "max_window_layers")
        return config
    full = fields.read_integer("max_window_layers", LARGEST_SIZE, least=0, default=28)
    return build_windowed(config, fields, lambda layer: layer >= full)


def _qwen3_moe(config: ModelConfig, fields: Fields) -> ModelConfig:
    # transformers writes the one name, the hub's files have the other.
    count = fields.read_integer("num_experts", MOST_EXPERTS, default=None)
    experts = Experts(
        count or fields.read_integer("num_local_experts", MOST_EXPERTS),
        fields.read_integer("num_experts_per_tok", MOST_EXPERTS),
        fields.read_integer("moe_intermediate_size", LARGEST_SIZE),
        fields.read_flag("norm_topk_prob"),
    )
    step = fields.read_integer("decoder_sparse_step", LARGEST_SIZE, default=1)
    dense = set(fields.read_integers("mlp_only_layers", LARGEST_SIZE, default=[]))
    sparse = [(layer + 1) % step == 0 and layer not in dense for layer in range(config.num_layers)]
    return with_experts(_describe_qwen3(config, fields), fields, experts, sparse)


def _qwen3_moe_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    experts = Experts(
        fields.read_integer("expert_count", MOST_EXPERTS),
        fields.read_integer("expert_used_count", MOST_EXPERTS),
        fields.read_integer("expert_feed_forward_length", LARGEST_SIZE),
        normalized=True,
    )
    return with_experts(_norm_heads(config, fields), fields, experts, [True] * config.num_layers)


QWEN2 = Family(_describe_qwen2)
QWEN3 = Family(_describe_qwen3, _norm_heads)
QWEN3_MOE = Family(_qwen3_moe, _qwen3_moe_gguf)
