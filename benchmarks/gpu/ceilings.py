"""What a GPU does at best, which every figure is a share of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this GPU does at best in the plainest operations, measured in the same run."""

    bytes_per_second: float
    flops_per_second: float
