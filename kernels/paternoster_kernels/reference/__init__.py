"""Every operation in plain torch: runs on any device, and says what the others must compute."""

from paternoster_kernels.reference.kv_write import kv_write
from paternoster_kernels.reference.paged_attention import paged_attention
from paternoster_kernels.reference.plan_attention import plan_attention
from paternoster_kernels.reference.rms_norm import rms_norm
from paternoster_kernels.reference.rope import rope
from paternoster_kernels.reference.silu_mul import silu_mul

__all__ = ["kv_write", "paged_attention", "plan_attention", "rms_norm", "rope", "silu_mul"]
