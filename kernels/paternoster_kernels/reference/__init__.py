"""Every operation in plain torch: runs on any device, and says what the others must compute."""

from paternoster_kernels.reference.advance_decode import advance_decode
from paternoster_kernels.reference.apply_penalties import apply_penalties
from paternoster_kernels.reference.blocks import pack_strips, strip_gated_matmul, strip_matmul, strip_rows
from paternoster_kernels.reference.gates import clamped_swiglu_mul, gelu_mul, silu_mul
from paternoster_kernels.reference.kv_cache import copy_blocks, kv_write, rope_kv_write
from paternoster_kernels.reference.lora import add_lora, lora_expand, lora_shrink
from paternoster_kernels.reference.matmul import grouped_matmul, matmul, pack_weight, packed_gated_matmul, packed_matmul
from paternoster_kernels.reference.norms import head_norm, rms_norm
from paternoster_kernels.reference.paged_attention import paged_attention
from paternoster_kernels.reference.plan_attention import plan_attention
from paternoster_kernels.reference.quantized_matmul import (
    int4_matmul,
    int8_matmul,
    pack_int8_weight,
    weight_only_matmul,
)
from paternoster_kernels.reference.rope import rope
from paternoster_kernels.reference.sample import argmax, sample
from paternoster_kernels.reference.unified_attention import unified_attention

__all__ = [
    "add_lora",
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
