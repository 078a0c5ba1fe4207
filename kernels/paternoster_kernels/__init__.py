"""The operations a model is made of, one function each, in one or several implementations.

``pick(op, device)`` gives the implementation for a device. ``reference`` is plain torch: it runs everywhere
and is the oracle that every other implementation is tested against. ``triton`` is what CUDA uses, ``cpu`` what CPUs
use for bfloat16.

The KV cache of a layer is one tensor ``[blocks, kv_heads, block_size, 2 * head_dim]``: a head's page is
contiguous, and each token's key and value lie side by side in it. Block 0 belongs to no sequence. One of 8 bits has
scales in its pages (``scaled_cache``).
"""

from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.ragged_batch import RaggedBatch
from paternoster_kernels.registry import OPS, pick_invariant, pick_kernel

__all__ = ["OPS", "DeviceBatch", "RaggedBatch", "pick_invariant", "pick_kernel"]
