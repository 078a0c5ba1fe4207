"""What a search may try of the law and of a fixed fleet: manifest paths -> values. Peers bring their own spaces."""

from collections.abc import Mapping, Sequence
from typing import Any

LAW_SPACE: Mapping[str, Sequence[Any]] = {
    "autoscaling.targetUtilizationPercent": (50, 60, 70, 80, 90, 100),
    "autoscaling.scaleDown.stabilizationWindowSeconds": (None, 60, 120, 300, 600),
}
"""What a user would turn first: how full replicas are planned, and for how long those that were needed are kept."""
CAPS = (32, 64, 96, 128, 192, 256)
"""Live caps that a fixed fleet is tried with, as far as the engines have the capacity."""
