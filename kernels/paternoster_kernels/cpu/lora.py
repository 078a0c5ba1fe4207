"""Adapters of a batch's rows."""

from collections.abc import Sequence
from ctypes import Structure, byref, c_int64, c_void_p

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import require_library
from paternoster_kernels.lora_batch import LoraBatch


class NativeLoraBatch(Structure):
    """Batch as ``native/operations.h`` has it."""

    _fields_ = [("table", c_void_p), ("starts", c_void_p), ("segments", c_int64)]

    @classmethod
    def describe_batch(cls, batch: LoraBatch) -> "NativeLoraBatch":
        """``batch`` is to live as long."""
        return cls(batch.table.data_ptr(), batch.native_starts.data_ptr(), len(batch.adapters))


def add_lora(out: torch.Tensor, x: torch.Tensor, batch: LoraBatch, first: int, widths: Sequence[int]) -> None:
    """Add the products of adapters, as in the reference; bfloat16 and float32."""
    if x.dtype not in (torch.bfloat16, torch.float32) or out.dtype != x.dtype or not out.is_contiguous():
        reference.add_lora(out, x, batch, first, widths)
        return
    x = x.contiguous()
    require_library().add_lora(
        out.data_ptr(),
        x.data_ptr(),
        x.dtype == torch.float32,
        byref(NativeLoraBatch.describe_batch(batch)),
        first,
        len(widths),
        (c_int64 * len(widths))(*widths),
        x.shape[1],
        0,
        torch.get_num_threads(),
    )
