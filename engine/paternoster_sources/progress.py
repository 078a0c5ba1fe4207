"""How far a model's download is."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

WINDOW = 10.0
"""Seconds over which the rate is taken."""

State = Literal["waiting", "downloading", "ready"]


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """``waiting``: for another process that fetches the same model."""

    state: State
    done: int = 0
    """Bytes on disk, those of earlier attempts among them."""
    total: int = 0
    rate: float = 0.0
    """Bytes a second that came lately."""


Report = Callable[[FetchProgress], None]


class Tally:
    """Bytes counted by several threads."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total, clock
        self._lock = threading.Lock()
        self._done = self._came = 0
        self._seen: deque[tuple[float, int]] = deque([(clock(), 0)])

    def add(self, count: int, fresh: bool) -> None:
        """``fresh``: whether they came just now; below 0 where a file begins anew."""
        with self._lock:
            self._done += count
            if fresh and count > 0:
                self._came += count

    def measure_progress(self) -> FetchProgress:
        """To be called now and then: the rate is between calls."""
        with self._lock:
            done, came = self._done, self._came
        now = self._clock()
        self._seen.append((now, came))
        while now - self._seen[0][0] > WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        return FetchProgress("downloading", done, self._total, (came - before) / (now - since) if now > since else 0.0)
