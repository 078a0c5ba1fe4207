"""Layers that see a window of tokens, beside others that see all; layers of experts, beside others of one MLP."""

from collections.abc import Callable
from dataclasses import replace

from paternoster_engine.model.config import LARGEST_SIZE, Experts, Layer, ModelConfig, Rope
from paternoster_engine.model.fields import Fields

FULL, SLIDING = "full_attention", "sliding_attention"
MOST_EXPERTS = 2**12
"""Many times the most known."""


def build_windowed(
    config: ModelConfig, fields: Fields, slides: Callable[[int], bool], *, local: Rope | None = None
) -> ModelConfig:
    """With the window that ``sliding_window`` gives to layers of ``layer_types``, or to those that ``slides`` names.

    ``local``: the rotary embedding of layers with a window, where it is another.
    """
    window = fields.read_integer("sliding_window", LARGEST_SIZE, default=None)
    if window is None:
        return config
    kinds = fields.read_texts("layer_types", default=[])
    if not kinds:
        kinds = [SLIDING if slides(i) else FULL for i in range(config.num_layers)]
    return with_window(config, window, _find_windowed(config, fields, kinds), local)


def read_local_rope(fields: Fields, theta: float) -> Rope:
    """The rotary embedding of layers with a window, which is not scaled; ``theta`` where the file has none for them."""
    parameters = Fields(fields.read_mapping("rope_parameters"), "config.json: rope_parameters")
    own = Fields(parameters.read_mapping("sliding_attention"), "config.json: rope_parameters.sliding_attention")
    return Rope(own.read_positive("rope_theta", default=theta))


def with_window(config: ModelConfig, window: int, slides: list[bool], local: Rope | None = None) -> ModelConfig:
    """With ``window`` in the layers that slide; a window that no request outgrows is none."""
    bound = window if window < config.context_length else None
    own = Layer(config.rope)
    sliding = Layer(local or config.rope, bound)
    layers = tuple(sliding if slide else own for slide in slides)
    return config if set(layers) == {own} else replace(config, layer_kinds=layers)


def with_experts(config: ModelConfig, fields: Fields, experts: Experts, sparse: list[bool]) -> ModelConfig:
    """With ``experts`` in the layers that are ``sparse``."""
    if experts.active > experts.count:
        raise fields.describe_refusal(
            "the number of active experts", experts.active, f"at most {experts.count}, all of them"
        )
    kinds = (replace(layer, experts=experts if has else None) for layer, has in zip(config.layers, sparse, strict=True))
    return replace(config, layer_kinds=tuple(kinds))


def _find_windowed(config: ModelConfig, fields: Fields, kinds: list[str]) -> list[bool]:
    if len(kinds) != config.num_layers:
        raise fields.describe_refusal(
            "the length of layer_types", len(kinds), f"{config.num_layers}, the number of layers"
        )
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise fields.describe_refusal("layer_types", kind, f"{FULL} or {SLIDING}")
    return [kind == SLIDING for kind in kinds]
