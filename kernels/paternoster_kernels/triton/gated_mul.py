"""The gate of a gated MLP: SiLU (SwiGLU) or the tanh form of GELU (GeGLU; both arXiv 2002.05202)."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def gated_mul_kernel(gate_up, out, size, row_stride, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """Grid: rows, blocks of columns."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    used = columns < size
    gate = tl.load(gate_up + row * row_stride + columns, mask=used, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * row_stride + size + columns, mask=used, other=0.0).to(tl.float32)
    if GELU:
        # gate * (1 + tanh(z)) / 2 is gate * sigmoid(2 * z).
        exponent = 2.0 * 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
    else:
        exponent = gate
    tl.store(out + row * size + columns, (gate / (1.0 + tl.exp(-exponent)) * up).to(out.dtype.element_ty), mask=used)


def _gated_mul(gate_up: torch.Tensor, gelu: bool) -> torch.Tensor:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, size)
    gated_mul_kernel[(rows, triton.cdiv(size, BLOCK))](gate_up, out, size, gate_up.stride(0), GELU=gelu, BLOCK=BLOCK)
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` for ``gate_up [rows, 2 * n]``, gate first; returns ``[rows, n]``."""
    return _gated_mul(gate_up, gelu=False)


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) * up``, tanh form."""
    return _gated_mul(gate_up, gelu=True)
