"""Root-mean-square norm with the residual addition before it: one program a row, one read and one write of each."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x, residual, weight, out, size, eps, x_stride, residual_stride, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    """Grid: rows."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    used = columns < size
    values = tl.load(x + row * x_stride + columns, mask=used, other=0.0)
    if ADD:
        values = tl.load(residual + row * residual_stride + columns, mask=used, other=0.0).to(tl.float32) + values
        # The norm sees what the next layer will see: the sum as it is stored.
        values = values.to(residual.dtype.element_ty)
        tl.store(residual + row * residual_stride + columns, values, mask=used)
    values = values.to(tl.float32)
    mean = tl.sum(values * values, 0) / size
    scaled = values * (1.0 / tl.sqrt_rn(mean + eps)) * tl.load(weight + columns, mask=used, other=0.0).to(tl.float32)
    tl.store(out + row * size + columns, scaled.to(out.dtype.element_ty), mask=used)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """RMS norm; ``x`` and ``residual`` ``[rows, n]`` may have any row stride."""
    rows, size = x.shape
    out = x.new_empty(rows, size)
    block = triton.next_power_of_2(size)
    rms_norm_kernel[(rows,)](
        x, x if residual is None else residual, weight, out, size, eps,
        x.stride(0), 0 if residual is None else residual.stride(0),
        ADD=residual is not None, BLOCK=block, num_warps=min(16, max(1, block // 512)),
    )  # fmt: skip
    return out
