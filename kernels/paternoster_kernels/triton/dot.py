"""The matrix product of all kernels."""

import triton
import triton.language as tl
from triton.language.target_info import is_hip

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def dot(a, b, total):
    """``a @ b + total``, summed in float32; float32 inputs as three TF32 products each, nearly as exact.

    AMD's matrix cores multiply float32 as it is.
    """
    if INTERPRETED:
        # The interpreter keeps bfloat16 as raw bits and would multiply those; as float32 the products are the same.
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    precision: tl.constexpr = "ieee" if is_hip() else "tf32x3"
    return tl.dot(a, b, total, input_precision=precision)
