"""All layers of a Decoder in one native call.

Each call of an operation from Python costs little by itself, but finds the caches full of the weights that went before.
"""

from collections.abc import Sequence
from ctypes import Structure, addressof, byref, c_float, c_int64, c_void_p
from dataclasses import dataclass

import torch

from paternoster_kernels.cpu.elementwise import WIDTH, Gate
from paternoster_kernels.cpu.kv_cache import ROTATED, is_tiled
from paternoster_kernels.cpu.library import library
from paternoster_kernels.device_batch import DeviceBatch

BF16 = torch.bfloat16
GATES = {"silu": Gate.SILU, "gelu": Gate.GELU}
"""Of MLPs, by the names of their activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer: norms and biases ``[size]``, matrices from :func:`~paternoster_kernels.cpu.matmul.pack_weight`.

    None is what the layer has not. Norms stand before attention and MLP, after them, or both.
    """

    attention_norm: torch.Tensor | None
    qkv: torch.Tensor
    """All query heads, then all key heads, then all value heads."""
    qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    """Of each head, ``[head_dim]``, or of all of them together; so ``key_norm``."""
    key_norm: torch.Tensor | None
    attention_out: torch.Tensor
    attention_out_bias: torch.Tensor | None
    attention_post_norm: torch.Tensor | None
    mlp_norm: torch.Tensor | None
    gate_up: torch.Tensor
    """Gated."""
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None
    mlp_post_norm: torch.Tensor | None
    rotary: torch.Tensor | None
    """``[length, rotated]`` float32: cosines, then sines."""
    group: int = 0
    """Whose plan its attention goes by."""
    place: int = 0
    """In the group: whose tensor of the KV cache is its."""

    @property
    def native(self) -> bool:
        """Whether the native operations take all of it."""
        matrices = (self.qkv, self.attention_out, self.gate_up, self.down)
        rotates = self.rotary is None or self.rotary.shape[1] % ROTATED == 0
        return rotates and all(matrix.dim() == 5 and matrix.dtype == BF16 for matrix in matrices)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What all layers have in common."""

    heads: int
    kv_heads: int
    head_dim: int
    activation: str
    """One of :data:`GATES`."""
    eps: float
    """Of norms."""
    scale: float
    """Of attention's scores."""
    residual_scale: float
    """Of what attention and MLP add."""


TENSORS = [name for name in LayerWeights.__dataclass_fields__ if name not in ("group", "place")]


class _Layer(Structure):
    _fields_ = [*((name, c_void_p) for name in (*TENSORS, "cache")), ("rotary_dim", c_int64), ("group", c_int64)]


class _Shape(Structure):
    _counts = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "block_size", "gate", "head_norms")
    _fields_ = [
        *((name, c_int64) for name in _counts),
        *((name, c_float) for name in ("eps", "scale", "residual_scale")),
    ]


class _Group(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("slots", "query_starts", "seq_lens", "tables")),
        ("table_width", c_int64),
        ("sequences", c_int64),
    ]


class _Tokens(Structure):
    _fields_ = [("count", c_int64), ("positions", c_void_p), ("groups", c_void_p)]


class _Room(Structure):
    _fields_ = [(name, c_void_p) for name in ("residual", "hidden", "qkv", "mixed", "gated")]


class DecoderLayers:
    """The layers of one model; keeps working memory for the largest pass it has seen."""

    def __init__(self, layers: Sequence[LayerWeights], shape: LayerShape) -> None:
        self._weights = layers
        hidden, intermediate = layers[0].down.shape[0] * 16, layers[0].down.shape[1] * 32
        norm = layers[0].query_norm
        self._shape = _Shape(
            layers=len(layers),
            hidden=hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            intermediate=intermediate,
            gate=GATES[shape.activation],
            head_norms=norm is not None and len(norm) == shape.head_dim,
            eps=shape.eps,
            scale=shape.scale,
            residual_scale=shape.residual_scale,
        )
        self._layers = (_Layer * len(layers))()
        for native, layer in zip(self._layers, layers, strict=True):
            for name in TENSORS:
                tensor = getattr(layer, name)
                setattr(native, name, None if tensor is None else tensor.data_ptr())
            native.rotary_dim = 0 if layer.rotary is None else layer.rotary.shape[1]
            native.group = layer.group
        heads = shape.heads + 2 * shape.kv_heads
        self._widths = (hidden, heads * shape.head_dim, shape.heads * shape.head_dim, intermediate)
        self._room = torch.empty(0, dtype=BF16)

    @staticmethod
    def takes(weights: Sequence[LayerWeights], activation: str) -> bool:
        """Whether layers are such that one call can run them."""
        sizes = {len(norm) for layer in weights for norm in (layer.query_norm, layer.key_norm) if norm is not None}
        vectors = all(size % WIDTH == 0 for size in sizes)
        return vectors and activation in GATES and all(layer.native for layer in weights)

    @staticmethod
    def reads(kv_cache: Sequence[torch.Tensor], plans: Sequence[object]) -> bool:
        """Whether these caches hold tiles, and the plans are for such."""
        return all(isinstance(plan, DeviceBatch) for plan in plans) and is_tiled(kv_cache[0])

    def __call__(
        self,
        residual: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        plans: Sequence[DeviceBatch],
    ) -> torch.Tensor:
        """Output of the last layer ``[tokens, hidden]``, good until the next call, for the embeddings ``residual``.

        What the last norm is to add is left in ``residual``. ``kv_cache``, one tensor for each layer of a group, is
        written to. ``plans``: one a group.
        """
        count = len(residual)
        sizes = [count * width for width in self._widths]
        if sum(sizes) > len(self._room):
            self._room = torch.empty(sum(sizes), dtype=BF16)
        hidden, qkv, mixed, gated = self._room[: sum(sizes)].split(sizes)
        for native, layer in zip(self._layers, self._weights, strict=True):
            native.cache = kv_cache[layer.place].data_ptr()
        self._shape.block_size = kv_cache[0].shape[2]
        groups = (_Group * len(plans))(*map(_group, plans))
        tokens = _Tokens(count, positions.data_ptr(), addressof(groups))
        room = _Room(*(part.data_ptr() for part in (residual, hidden, qkv, mixed, gated)))
        library().decoder_layers(self._layers, byref(self._shape), byref(tokens), byref(room), torch.get_num_threads())
        return hidden.view(count, -1)


def _group(plan: DeviceBatch) -> _Group:
    return _Group(
        plan.slots.data_ptr(),
        plan.query_starts.data_ptr(),
        plan.seq_lens.data_ptr(),
        plan.block_tables.data_ptr(),
        plan.block_tables.shape[1],
        len(plan.seq_lens),
    )
