"""Latency over time: percentiles of the requests that came in each window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Timeline:
    """One entry a window that has requests, in order of time."""

    time: list[float]
    """Middle of the window, in seconds."""
    count: list[int]
    """Requests in it."""
    shares: dict[int, list[float]]
    """Values of each percentile asked for, in the unit of the values."""


def percentiles_by_window(
    time: NDArray[np.floating], values: NDArray[np.floating], *, width: float, shares: Sequence[int]
) -> Timeline:
    """Percentiles ``shares`` of ``values`` in windows of ``width`` seconds by ``time``; both of shape [n], any order.

    Windows are [0, width), [width, 2 width) and so on; those without a value are left out.
    """
    if width <= 0:
        raise ValueError(f"width is {width}: must be above 0")
    windows = np.floor_divide(time, width).astype(np.int64)
    order = np.argsort(windows, kind="stable")
    numbers, starts = np.unique(windows[order], return_index=True)
    # Splitting nothing would leave one empty part.
    parts = np.split(values[order], starts[1:]) if len(starts) else []
    points = [np.percentile(part, shares) for part in parts]
    return Timeline(
        time=((numbers + 0.5) * width).tolist(),
        count=[len(part) for part in parts],
        shares={share: [float(point[i]) for point in points] for i, share in enumerate(shares)},
    )
