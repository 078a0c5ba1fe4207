"""What a search may try of the law and of a fixed fleet: manifest paths -> values. Peers bring their own spaces."""

from collections.abc import Mapping, Sequence
from typing import Any

LAW_SPACE: Mapping[str, Sequence[Any]] = {
    "autoscaling.targetUtilizationPercent": (40, 50, 60, 70, 80, 90, 100),
    "autoscaling.scaleDown.stabilizationWindowSeconds": (None, 60, 120, 300, 600),
    "autoscaling.scaleDown.maxPods": (1, 2),
}
CAP_SPACE: Mapping[str, Sequence[Any]] = {
    "concurrency.initial": (None, 32, 64, 96, 128),
    "concurrency.preemptionTargetPerThousand": (5, 20, 50),
    "concurrency.decreasePercent": (10, 20, 40),
}
CAPS = (32, 64, 96, 128, 192, 256)
"""Live caps that a fixed fleet is tried with, as far as the engines have the capacity."""
