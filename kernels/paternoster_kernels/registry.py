"""Which implementation of an operation runs on which device."""

from collections.abc import Callable
from typing import Any

import torch

from paternoster_kernels import reference

Op = Callable[..., Any]

OPS: dict[str, Op] = {
    "kv_write": reference.kv_write,
    "paged_attention": reference.paged_attention,
    "plan_attention": reference.plan_attention,
    "rms_norm": reference.rms_norm,
    "rope": reference.rope,
    "silu_mul": reference.silu_mul,
}


def pick(op: str, device: torch.device) -> Op:
    """The implementation of ``op`` for ``device``; raises ``KeyError`` for an unknown operation."""
    return OPS[op]
