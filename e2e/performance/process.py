"""What a process costs, from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024


@dataclass(frozen=True)
class Cost:
    """One process at one moment."""

    when: float
    cpu_seconds: float
    rss_mib: float

    @classmethod
    def of(cls, pid: int) -> "Cost":
        # The second field may have blanks and parentheses in it: count from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        return cls(time.monotonic(), (int(fields[11]) + int(fields[12])) / _TICKS, resident / _MIB)

    def cpu_percent_since(self, before: "Cost") -> float:
        """100 is one core."""
        return 100 * (self.cpu_seconds - before.cpu_seconds) / (self.when - before.when)

    def growth_since(self, before: "Cost") -> float:
        """MiB per minute."""
        return 60 * (self.rss_mib - before.rss_mib) / (self.when - before.when)
