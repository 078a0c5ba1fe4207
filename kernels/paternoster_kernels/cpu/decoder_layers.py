"""All layers of a Decoder in one native call.

Each call of an operation from Python costs little by itself, but finds the caches full of the weights that went before.
"""

from collections.abc import Sequence
from ctypes import Structure, addressof, byref, c_float, c_int64, c_void_p
from dataclasses import dataclass

import torch

from paternoster_kernels.blocks import Strips
from paternoster_kernels.cpu.elementwise import WIDTH, Gate
from paternoster_kernels.cpu.kv_cache import is_tiled
from paternoster_kernels.cpu.library import require_library
from paternoster_kernels.cpu.lora import NativeLoraBatch
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.lora_batch import LoraBatch
from paternoster_kernels.scaled_cache import is_scaled

BF16 = torch.bfloat16
GATES = {"silu": Gate.SILU, "gelu": Gate.GELU}
"""Gates of MLPs, by the names of their activations."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """From :func:`~paternoster_kernels.cpu.matmul.pack_weight`, or strips; ``bias [out]``, None for none."""

    weight: torch.Tensor | Strips
    bias: torch.Tensor | None = None

    @property
    def native(self) -> bool:
        """Whether there is a product with it."""
        return isinstance(self.weight, Strips) or (self.weight.dim() == 5 and self.weight.dtype == BF16)

    @property
    def sizes(self) -> tuple[int, int]:
        """Outputs and inputs."""
        if isinstance(self.weight, Strips):
            return self.weight.out_features, self.weight.in_features
        return len(self.weight) * 16, self.weight.shape[1] * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; None is what it has not. Norms, ``[hidden]``, stand before attention and MLP, after them, or both."""

    attention_norm: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    """Norm of each head, ``[head_dim]``, or of all of them together; so ``key_norm``."""
    key_norm: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    attention_post_norm: torch.Tensor | None = None
    mlp_norm: torch.Tensor | None = None
    mlp_post_norm: torch.Tensor | None = None
    qkv: Matrix
    """All query heads, then all key heads, then all value heads."""
    attention_out: Matrix
    gate_up: Matrix
    """Gated."""
    down: Matrix
    rotary: torch.Tensor | None = None
    """``[length, rotated]`` float32: cosines, then sines."""
    group: int = 0
    """Whose plan its attention goes by."""
    place: int = 0
    """In the group: whose tensor of the KV cache is its."""
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What all layers have in common."""

    heads: int
    kv_heads: int
    head_dim: int
    activation: str
    """One of :data:`GATES`."""
    eps: float
    """Epsilon of norms."""
    scale: float
    """Scale of attention's scores."""
    softcap: float | None
    residual_scale: float
    """Scale of what attention and MLP add."""


VECTORS = (
    "attention_norm", "query_norm", "key_norm", "sinks", "attention_post_norm", "mlp_norm", "mlp_post_norm",
)  # fmt: skip
MATRICES = ("qkv", "attention_out", "gate_up", "down")


class _Matrix(Structure):
    _fields_ = [(name, c_void_p) for name in ("packed", "strips", "bias")]

    @classmethod
    def describe_matrix(cls, matrix: Matrix) -> "_Matrix":
        weight, bias = matrix.weight, _pointer_of(matrix.bias)
        if isinstance(weight, Strips):
            return cls(_pointer_of(weight.data), _pointer_of(weight.table), bias)
        return cls(_pointer_of(weight), None, bias)


class _Layer(Structure):
    _fields_ = [
        *((name, c_void_p) for name in VECTORS),
        *((name, _Matrix) for name in MATRICES),
        *((name, c_void_p) for name in ("rotary", "cache")),
        *((name, c_int64) for name in ("rotary_dim", "group", "window")),
    ]


class _Shape(Structure):
    _counts = (
        "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "block_size", "quantized", "gate",
        "head_norms",
    )  # fmt: skip
    _fields_ = [
        *((name, c_int64) for name in _counts),
        *((name, c_float) for name in ("eps", "scale", "softcap", "residual_scale")),
    ]


class _Group(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("slots", "query_starts", "seq_lens", "tables")),
        ("table_width", c_int64),
        ("sequences", c_int64),
    ]


class _Tokens(Structure):
    _fields_ = [("count", c_int64), ("positions", c_void_p), ("groups", c_void_p), ("lora", c_void_p)]


class _Room(Structure):
    _fields_ = [(name, c_void_p) for name in ("residual", "hidden", "qkv", "mixed", "gated", "in_turns")]


class DecoderLayers:
    """The layers of one model; keeps working memory for the largest pass it has seen."""

    def __init__(self, layers: Sequence[LayerWeights], shape: LayerShape) -> None:
        """Keep layers that :meth:`supports_layers` accepts."""
        self._weights = layers
        (hidden, intermediate), norm = layers[0].down.sizes, layers[0].query_norm
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
            softcap=shape.softcap or 0.0,
            residual_scale=shape.residual_scale,
        )
        self._layers = (_Layer * len(layers))(*map(_describe_layer, layers))
        heads = shape.heads + 2 * shape.kv_heads
        self._widths = (hidden, heads * shape.head_dim, shape.heads * shape.head_dim, intermediate)
        self._room = torch.empty(0, dtype=BF16)

    @staticmethod
    def supports_layers(layers: Sequence[LayerWeights], activation: str) -> bool:
        """Whether one call can run layers of these sizes and numbers."""
        norms = [norm for layer in layers for norm in (layer.query_norm, layer.key_norm) if norm is not None]
        native = all(getattr(layer, name).native for layer in layers for name in MATRICES)
        return native and activation in GATES and all(len(norm) % WIDTH == 0 for norm in norms)

    @staticmethod
    def reads_tiles(kv_cache: Sequence[torch.Tensor], plans: Sequence[object]) -> bool:
        """Whether these caches hold tiles, and the plans are for such."""
        return all(isinstance(plan, DeviceBatch) for plan in plans) and is_tiled(kv_cache[0])

    def __call__(
        self,
        residual: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        plans: Sequence[DeviceBatch],
        lora: LoraBatch | None = None,
    ) -> torch.Tensor:
        """Output of the last layer ``[tokens, hidden]``, good until the next call, for the embeddings ``residual``.

        What the last norm is to add is left in ``residual``. ``kv_cache``, one tensor for each layer of a group, is
        written to. ``plans``: one a group. ``lora``: seven matrices a layer, as they are multiplied with.
        """
        count = len(residual)
        # With adapters the gate comes after them.
        sizes = [count * width for width in (*self._widths, 0 if lora is None else 2 * self._widths[-1])]
        if sum(sizes) > len(self._room):
            self._room = torch.empty(sum(sizes), dtype=BF16)
        parts: tuple[torch.Tensor, ...] = self._room[: sum(sizes)].split(sizes)
        hidden, qkv, mixed, gated, in_turns = parts
        for native, layer in zip(self._layers, self._weights, strict=True):
            native.cache = kv_cache[layer.place].data_ptr()
        self._shape.block_size, self._shape.quantized = kv_cache[0].shape[2], is_scaled(kv_cache[0])
        groups = (_Group * len(plans))(*map(_describe_group, plans))
        adapters = None if lora is None else NativeLoraBatch.describe_batch(lora)
        own = None if adapters is None else addressof(adapters)
        tokens = _Tokens(count, positions.data_ptr(), addressof(groups), own)
        room = _Room(*(part.data_ptr() for part in (residual, hidden, qkv, mixed, gated, in_turns)))
        require_library().decoder_layers(
            self._layers, byref(self._shape), byref(tokens), byref(room), torch.get_num_threads()
        )
        return hidden.view(count, -1)


def _pointer_of(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _describe_layer(layer: LayerWeights) -> _Layer:
    native = _Layer(
        rotary=_pointer_of(layer.rotary),
        rotary_dim=0 if layer.rotary is None else layer.rotary.shape[1],
        group=layer.group,
        window=layer.window or 0,
    )
    for name in VECTORS:
        setattr(native, name, _pointer_of(getattr(layer, name)))
    for name in MATRICES:
        setattr(native, name, _Matrix.describe_matrix(getattr(layer, name)))
    return native


def _describe_group(plan: DeviceBatch) -> _Group:
    return _Group(
        plan.slots.data_ptr(),
        plan.query_starts.data_ptr(),
        plan.seq_lens.data_ptr(),
        plan.block_tables.data_ptr(),
        plan.block_tables.shape[1],
        len(plan.seq_lens),
    )
