"""Every operation in plain torch: runs on any device, and says what the others must compute."""

from paternoster_kernels.reference.advance_decode import advance_decode
from paternoster_kernels.reference.apply_penalties import apply_penalties
from paternoster_kernels.reference.argmax import argmax
from paternoster_kernels.reference.blocks import pack_strips, strip_gated_matmul, strip_matmul, strip_rows
from paternoster_kernels.reference.clamped_swiglu_mul import clamped_swiglu_mul
from paternoster_kernels.reference.copy_blocks import copy_blocks
from paternoster_kernels.reference.gelu_mul import gelu_mul
from paternoster_kernels.reference.grouped_matmul import grouped_matmul
from paternoster_kernels.reference.head_norm import head_norm
from paternoster_kernels.reference.int4_matmul import int4_matmul
from paternoster_kernels.reference.int8_matmul import int8_matmul, pack_int8_weight
from paternoster_kernels.reference.kv_write import kv_write
from paternoster_kernels.reference.lora import lora_expand, lora_shrink
from paternoster_kernels.reference.matmul import matmul
from paternoster_kernels.reference.packed_matmul import pack_weight, packed_gated_matmul, packed_matmul
from paternoster_kernels.reference.paged_attention import paged_attention
from paternoster_kernels.reference.plan_attention import plan_attention
from paternoster_kernels.reference.rms_norm import rms_norm
from paternoster_kernels.reference.rope import rope
from paternoster_kernels.reference.rope_kv_write import rope_kv_write
from paternoster_kernels.reference.sample import sample
from paternoster_kernels.reference.silu_mul import silu_mul
from paternoster_kernels.reference.unified_attention import unified_attention
from paternoster_kernels.reference.weight_only_matmul import weight_only_matmul

__all__ = [
    "advance_decode",
    "apply_penalties",
    "argmax",
    "clamped_swiglu_mul",
    "copy_blocks",
    "gelu_mul",
    "grouped_matmul",
    "head_norm",
    "int4_matmul",
    "int8_matmul",
    "kv_write",
    "lora_expand",
    "lora_shrink",
    "matmul",
    "pack_int8_weight",
    "pack_strips",
    "pack_weight",
    "packed_gated_matmul",
    "packed_matmul",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope",
    "rope_kv_write",
    "sample",
    "silu_mul",
    "strip_gated_matmul",
    "strip_matmul",
    "strip_rows",
    "unified_attention",
    "weight_only_matmul",
]
