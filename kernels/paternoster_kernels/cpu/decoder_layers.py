"""All layers of a Decoder in one native call.

Each call of an operation from Python costs little by itself, but finds the caches full of the weights that went before.
"""

from collections.abc import Sequence
from ctypes import Structure, byref, c_float, c_int64, c_void_p
from dataclasses import dataclass

import torch

from paternoster_kernels.blocks import Strips
from paternoster_kernels.cpu.kv_cache import is_tiled
from paternoster_kernels.cpu.library import library
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.scaled_cache import is_scaled

BF16 = torch.bfloat16
Matrix = torch.Tensor | Strips


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Norms ``[hidden]``, matrices from :func:`~paternoster_kernels.cpu.matmul.pack_weight` or strips.

    ``gate_up`` is gated.
    """

    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    qkv: Matrix
    """All query heads, then all key heads, then all value heads."""
    attention_out: Matrix
    gate_up: Matrix
    down: Matrix

    @property
    def native(self) -> bool:
        """Whether the native operations take all of them."""
        return all(_native(matrix) for matrix in (self.qkv, self.attention_out, self.gate_up, self.down))


def _native(matrix: Matrix) -> bool:
    return isinstance(matrix, Strips) or (matrix.dim() == 5 and matrix.dtype == BF16)


def _sizes(matrix: Matrix) -> tuple[int, int]:
    """Outputs and inputs."""
    if isinstance(matrix, Strips):
        return matrix.out_features, matrix.in_features
    return len(matrix) * 16, matrix.shape[1] * 32


class _Matrix(Structure):
    _fields_ = [("packed", c_void_p), ("strips", c_void_p)]

    @classmethod
    def of(cls, matrix: Matrix) -> "_Matrix":
        if isinstance(matrix, Strips):
            return cls(matrix.data.data_ptr(), matrix.table.data_ptr())
        return cls(matrix.data_ptr(), None)


class _Layer(Structure):
    _norms = ("attention_norm", "mlp_norm")
    _matrices = ("qkv", "attention_out", "gate_up", "down")
    _fields_ = [*((name, c_void_p) for name in _norms), *((name, _Matrix) for name in _matrices), ("cache", c_void_p)]


class _Shape(Structure):
    _counts = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "block_size", "quantized")
    _fields_ = [*((name, c_int64) for name in _counts), ("eps", c_float), ("scale", c_float)]


class _Tokens(Structure):
    _fields_ = [
        ("count", c_int64),
        *((name, c_void_p) for name in ("positions", "slots", "query_starts", "seq_lens", "tables")),
        ("table_width", c_int64),
        ("sequences", c_int64),
        ("angles", c_void_p),
    ]


class _Room(Structure):
    _fields_ = [(name, c_void_p) for name in ("residual", "hidden", "qkv", "mixed", "gated")]


class DecoderLayers:
    """The layers of one model; keeps working memory for the largest pass it has seen."""

    def __init__(self, layers: Sequence[LayerWeights], rotary_table: torch.Tensor, head_dim: int, eps: float) -> None:
        """``rotary_table [length, head_dim]`` float32: cosines, then sines."""
        self._weights = layers
        self._rotary = rotary_table
        heads = _sizes(layers[0].attention_out)[1] // head_dim
        kv_heads = (_sizes(layers[0].qkv)[0] // head_dim - heads) // 2
        hidden, intermediate = _sizes(layers[0].down)
        self._shape = _Shape(len(layers), hidden, heads, kv_heads, head_dim, intermediate, 0, 0, eps, head_dim**-0.5)
        self._layers = (_Layer * len(layers))()
        for native, layer in zip(self._layers, layers, strict=True):
            for name in _Layer._norms:
                setattr(native, name, getattr(layer, name).data_ptr())
            for name in _Layer._matrices:
                setattr(native, name, _Matrix.of(getattr(layer, name)))
        self._widths = (hidden, (heads + 2 * kv_heads) * head_dim, heads * head_dim, intermediate)
        self._room = torch.empty(0, dtype=BF16)

    def takes(self, kv_cache: Sequence[torch.Tensor], plan: object) -> bool:
        """Whether these caches hold tiles, and the plan is for such."""
        return isinstance(plan, DeviceBatch) and is_tiled(kv_cache[0])

    def __call__(
        self, residual: torch.Tensor, positions: torch.Tensor, kv_cache: Sequence[torch.Tensor], plan: DeviceBatch
    ) -> torch.Tensor:
        """Output of the last layer ``[tokens, hidden]``, good until the next call, for the embeddings ``residual``.

        What the last norm is to add is left in ``residual``. ``kv_cache``, one tensor a layer, is written to.
        """
        count = len(residual)
        sizes = [count * width for width in self._widths]
        if sum(sizes) > len(self._room):
            self._room = torch.empty(sum(sizes), dtype=BF16)
        hidden, qkv, mixed, gated = self._room[: sum(sizes)].split(sizes)
        for native, cache in zip(self._layers, kv_cache, strict=True):
            native.cache = cache.data_ptr()
        self._shape.block_size, self._shape.quantized = kv_cache[0].shape[2], is_scaled(kv_cache[0])
        tokens = _Tokens(
            count,
            positions.data_ptr(),
            plan.slots.data_ptr(),
            plan.query_starts.data_ptr(),
            plan.seq_lens.data_ptr(),
            plan.block_tables.data_ptr(),
            plan.block_tables.shape[1],
            len(plan.seq_lens),
            self._rotary.data_ptr(),
        )
        room = _Room(*(part.data_ptr() for part in (residual, hidden, qkv, mixed, gated)))
        library().decoder_layers(self._layers, byref(self._shape), byref(tokens), byref(room), torch.get_num_threads())
        return hidden.view(count, -1)
