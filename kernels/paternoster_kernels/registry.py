"""Which implementation of an operation runs on which device."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import load_library

Op = Callable[..., Any]

OPS: dict[str, Op] = {name: getattr(reference, name) for name in reference.__all__}
"""The reference of every operation."""

TRITON_MODULES: dict[str, str] = {
    "add_lora": "triton.products.add_lora",
    "advance_decode": "triton.advance_decode",
    "apply_penalties": "triton.apply_penalties",
    "argmax": "triton.sample",
    "copy_blocks": "triton.kv_cache.copy_blocks",
    "gelu_mul": "triton.gated_mul",
    "grouped_matmul": "triton.products.grouped_matmul",
    "head_norm": "triton.head_norm",
    "int4_matmul": "triton.products.int4_matmul",
    "kv_write": "triton.kv_cache.kv_write",
    "lora_expand": "triton.products.lora_expand",
    "lora_shrink": "triton.products.lora_shrink",
    "matmul": "triton.products.matmul",
    "paged_attention": "triton.unified_attention",
    "plan_attention": "device_batch",
    "rms_norm": "triton.rms_norm",
    "rope_kv_write": "triton.kv_cache.rope_kv_write",
    "sample": "triton.sample",
    "silu_mul": "triton.gated_mul",
    "unified_attention": "triton.unified_attention",
    "weight_only_matmul": "triton.products.weight_only_matmul",
}
"""Where each operation's Triton kernel lies; ``rope`` has none, as ``rope_kv_write`` holds it."""

CPU_MODULES: dict[str, str] = {
    "add_lora": "lora",
    "argmax": "elementwise",
    "gelu_mul": "elementwise",
    "head_norm": "elementwise",
    "int8_matmul": "int8_matmul",
    "kv_write": "kv_cache",
    "pack_int8_weight": "int8_matmul",
    "pack_strips": "strips",
    "pack_weight": "matmul",
    "packed_gated_matmul": "matmul",
    "packed_matmul": "matmul",
    "paged_attention": "attention",
    "plan_attention": "attention",
    "rms_norm": "elementwise",
    "rope_kv_write": "kv_cache",
    "sample": "sample",
    "silu_mul": "elementwise",
    "strip_gated_matmul": "strips",
    "strip_matmul": "strips",
    "strip_rows": "strips",
}
"""Where each operation's C++ for CPUs is called from."""


INVARIANT_MODULES: dict[str, dict[str, str]] = {
    "cpu": {
        "head_norm": "invariant.rows",
        "paged_attention": "invariant.attention",
        "plan_attention": "invariant.attention",
        "rms_norm": "invariant.rows",
        "silu_mul": "invariant.rows",
    },
    "cuda": {"paged_attention": "invariant.one_pass"},
}
"""Modules by device, where operations depend on nothing but a row's own numbers; the others do so as they are."""


def pick_kernel(op: str, device: torch.device) -> Op:
    """The implementation of ``op`` for ``device``: Triton's on CUDA, C++ where a CPU has it, the reference elsewhere.

    Raises ``KeyError`` for an unknown operation.
    """
    if device.type == "cpu" and op in CPU_MODULES and load_library() is not None:
        return cpu_op(op)
    if device.type == "cuda" and op in TRITON_MODULES and find_spec("triton"):
        return triton_op(op)
    return OPS[op]


def pick_invariant(op: str, device: torch.device) -> Op:
    """Pick an implementation in which no row depends on what else is in the batch."""
    module = INVARIANT_MODULES.get(device.type, {}).get(op)
    if module is None:
        return pick_kernel(op, device)
    found: Op = getattr(import_module(f"paternoster_kernels.{module}"), op)
    return found


@cache
def cpu_op(op: str) -> Op:
    """The C++ operation ``op``; callable only where there is a library for it."""
    found: Op = getattr(import_module(f"paternoster_kernels.cpu.{CPU_MODULES[op]}"), op)
    return found


@cache
def triton_op(op: str) -> Op:
    """The Triton kernel of ``op``; imports Triton, so only machines that run it need it."""
    found: Op = getattr(import_module(f"paternoster_kernels.{TRITON_MODULES[op]}"), op)
    return found
