"""What processes hold, looked at again and again, and whether that grows."""

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import median

import psutil

from harness.processes import resident_bytes
from harness.servers import Server


class Samples:
    """Resident bytes by process, with the time of each look."""

    def __init__(self) -> None:
        self.memory: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def read_memory(self, server: Server) -> None:
        self.memory[server.name].append((time.monotonic(), float(resident_bytes(server.pid))))

    def forget(self, server: Server) -> None:
        """It was started anew."""
        self.memory.pop(server.name, None)


def descriptors(server: Server) -> int:
    return int(psutil.Process(server.pid).num_fds())


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil-Sen: the median of the slopes between any two points of the second half, so that jumps do not move it."""
    half = points[len(points) // 2 :]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(half, 2) if b[0] > a[0]]
    return median(slopes) if slopes else 0.0
