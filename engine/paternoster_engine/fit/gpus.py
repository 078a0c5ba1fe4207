"""Data-sheet figures of GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One kind of GPU."""

    memory: int
    """Bytes, as ``nvidia-smi`` shows them."""
    bytes_per_second: float
    """Bandwidth of its memory."""
    flops_per_second: float
    """Peak of dense products of bfloat16 matrices."""
    link_bytes_per_second: float
    """To the other GPUs of its node, in one direction: half of what data sheets give."""


GPUS: Mapping[str, GpuKind] = {
    "L4": GpuKind(23_034 * MIB, 300e9, 121e12, 32e9),
    "L40S": GpuKind(46_068 * MIB, 864e9, 362e12, 32e9),
    "A100 40 GB": GpuKind(40_960 * MIB, 1.555e12, 312e12, 300e9),
    "A100 80 GB": GpuKind(81_920 * MIB, 2.039e12, 312e12, 300e9),
    "H100": GpuKind(81_559 * MIB, 3.35e12, 989e12, 450e9),
    "H200": GpuKind(143_771 * MIB, 4.8e12, 989e12, 450e9),
    "B200": GpuKind(183_359 * MIB, 8e12, 2_250e12, 900e9),
}
"""NVIDIA's data sheets: A100, H100, H200 and B200 are those with NVLink (SXM, HGX); L4 and L40S have PCIe 4.0 x16."""
