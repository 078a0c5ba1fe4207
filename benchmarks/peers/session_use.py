"""What a peer's processes use: memory and processor time of one session, read from ``/proc``."""

import os
import threading
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def stat_fields(text: str) -> list[str]:
    """Fields of a ``stat`` line from the third on; the name before them may hold blanks and brackets."""
    return text.rpartition(")")[2].split()


def members(session: int, proc: Path = PROC) -> list[Path]:
    """Folders of the processes that are in ``session``."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = stat_fields((folder / "stat").read_text())
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(folder)
    return found


def cpu_seconds(session: int, proc: Path = PROC) -> float:
    """Processor time of the session's living processes and of those they have waited for."""
    total = 0
    for folder in members(session, proc):
        try:
            fields = stat_fields((folder / "stat").read_text())
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def proportional_bytes(session: int, proc: Path = PROC) -> int:
    """Resident memory of the session; a page that several processes share counts once."""
    total = 0
    for folder in members(session, proc):
        try:
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024


def machine_cpu_seconds(proc: Path = PROC) -> float:
    """Processor time that the whole machine has spent on anything."""
    user, nice, system, _, _, irq, softirq, *_ = (int(n) for n in (proc / "stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS


class SessionUse:
    """Use as a context manager around a measurement; the numbers are there after it."""

    def __init__(self, session: int, interval: float = 1.0) -> None:
        self.peak_bytes = 0
        self.other_cpu_seconds = 0.0
        """Processor time of everything on the machine but the session and this process."""
        self._session = session
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "SessionUse":
        self._before = self._others()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.other_cpu_seconds = max(self._others() - self._before, 0.0)

    def _others(self) -> float:
        own = sum(os.times()[:2])
        return machine_cpu_seconds() - cpu_seconds(self._session) - own

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, proportional_bytes(self._session))
            if self._over.wait(self._interval):
                return
