"""A model's layers as one native call, where there is one for them."""

from collections.abc import Sequence

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.layers.layer import DecoderLayer
from paternoster_engine.model.layers.linear import Linear
from paternoster_engine.model.layers.mlp import Mlp
from paternoster_engine.process_group import Ranks
from paternoster_kernels.cpu.decoder_layers import DecoderLayers, LayerShape, LayerWeights, Matrix
from paternoster_kernels.cpu.library import load_library


def in_one_call(config: ModelConfig, layers: Sequence[DecoderLayer], ranks: Ranks) -> DecoderLayers | None:
    """None where a layer has what the call has not: experts, or sizes and numbers without native products."""
    if load_library() is None or ranks.size > 1:
        return None
    weights = [found for layer in layers if (found := _layer_weights(layer)) is not None]
    block = config.block
    if len(weights) < len(layers) or not DecoderLayers.supports_layers(weights, block.activation):
        return None
    shape = LayerShape(
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        activation=block.activation,
        eps=config.rms_norm_eps,
        scale=layers[0].attention.scale,
        softcap=block.attention_softcap,
        residual_scale=block.residual_scale,
    )
    return DecoderLayers(weights, shape)


def _layer_weights(layer: DecoderLayer) -> LayerWeights | None:
    attention = layer.attention
    if not isinstance(layer.mlp, Mlp):
        return None
    query_norm, key_norm = attention.norms or (None, None)
    gate_up, down = layer.mlp.iterate_linears()
    return LayerWeights(
        attention_norm=layer.attention_norm,
        query_norm=query_norm,
        key_norm=key_norm,
        sinks=attention.options.get("sinks"),
        attention_post_norm=layer.attention_post_norm,
        mlp_norm=layer.mlp_norm,
        mlp_post_norm=layer.mlp_post_norm,
        qkv=_matrix_of(attention.qkv),
        attention_out=_matrix_of(attention.out),
        gate_up=_matrix_of(gate_up),
        down=_matrix_of(down),
        rotary=attention.rotary,
        group=layer.group,
        place=layer.place,
        window=attention.options.get("window"),
    )


def _matrix_of(linear: Linear) -> Matrix:
    return Matrix(linear.weight, linear.bias)
