"""gpt-oss (arXiv 2508.10925): experts in MXFP4, sinks, and a window in every other layer."""

import re
from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, Experts, ModelConfig
from paternoster_engine.model.families.family import Family, Files
from paternoster_engine.model.families.layer_kinds import MOST_EXPERTS, build_windowed, with_experts, with_window
from paternoster_engine.model.families.mxfp4 import Mxfp4
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.rope_scaling import Yarn
from paternoster_engine.model.weights.stored import LazyTensor

_EXPERT = re.compile(r"(model[.]layers[.]\d+[.]mlp[.]experts[.])(\d+)[.](gate|up|down)_proj[.](weight|bias)")


def _gpt_oss(config: ModelConfig, fields: Fields, count: str, active: str, width: str) -> ModelConfig:
    experts = Experts(
        fields.read_integer(count, MOST_EXPERTS),
        fields.read_integer(active, MOST_EXPERTS),
        fields.read_integer(width, LARGEST_SIZE),
        True,
    )
    # Biases are everywhere, and config.json names those of attention alone.
    block = replace(config.block, qkv_bias=True, out_bias=True, mlp_bias=True, router_bias=True, sinks=True)
    config = replace(config, block=replace(block, activation="clamped_swiglu"))
    return with_experts(config, fields, experts, [True] * config.num_layers)


def _from_hf(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = build_windowed(config, fields, lambda layer: layer % 2 == 0)
    return _gpt_oss(config, fields, "num_local_experts", "num_experts_per_tok", "intermediate_size")


def _from_gguf(config: ModelConfig, fields: Fields) -> ModelConfig:
    if isinstance(config.rope_scaling, Yarn):
        # GGUF files do not say that its bounds are not whole dimensions.
        config = replace(config, rope_scaling=replace(config.rope_scaling, whole=False))
    window = fields.read_integer("attention.sliding_window", LARGEST_SIZE)
    config = with_window(config, window, [layer % 2 == 0 for layer in range(config.num_layers)])
    return _gpt_oss(config, fields, "expert_count", "expert_used_count", "expert_feed_forward_length")


def _find_expert(files: Files, name: str) -> LazyTensor | None:
    """Gate and up in turns; in MXFP4 output by output, else input by input."""
    if (found := _EXPERT.fullmatch(name)) is None:
        return None
    prefix, number, part, kind = found[1], int(found[2]), found[3], found[4]
    stored = prefix + ("down_proj" if part == "down" else "gate_up_proj")
    rows = {"gate": slice(0, None, 2), "up": slice(1, None, 2), "down": slice(None)}[part]
    if kind == "bias":
        return files.read_part(f"{stored}_bias", number)[rows]
    if files.has_tensor(f"{stored}_blocks"):
        return Mxfp4(
            files.read_part(f"{stored}_blocks", number)[rows], files.read_part(f"{stored}_scales", number)[rows]
        )
    return files.read_part(stored, number).T[rows]


GPT_OSS = Family(
    _from_hf,
    _from_gguf,
    names={"gate": "router"},
    expert=_find_expert,
    defaults={"head_dim": 64, "attention_bias": True, "rms_norm_eps": 1e-5, "rope_theta": 150_000.0},
)
