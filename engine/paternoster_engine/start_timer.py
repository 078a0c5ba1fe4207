"""Which part of an engine's start takes how long."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from paternoster_contract.stats import StartPart


class StartTimer:
    """A stop watch whose laps belong to parts; together they are all the time since the start."""

    def __init__(self, age: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """``age``: seconds since the start."""
        self.seconds = dict.fromkeys(StartPart, 0.0)
        self._clock = clock
        self._since = clock() - age

    def record_end(self, part: StartPart) -> None:
        """All since the last call was of ``part``."""
        now = self._clock()
        self.seconds[part] += now - self._since
        self._since = now

    def __str__(self) -> str:
        parts = ", ".join(f"{part.replace('_', '-')} {seconds:.1f} s" for part, seconds in self.seconds.items())
        return f"{sum(self.seconds.values()):.1f} s: {parts}"


def process_age() -> float:
    """Seconds since this process was started, on Linux; 0 elsewhere."""
    try:
        # The name, the second field, may have spaces in it; see proc_pid_stat(5).
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
