"""Who else computes: processor time around a local fleet that goes into no step of its engines."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil


def seconds_beside(fleet: int) -> float:
    """Processor seconds so far of this process and of the fleet with the process id ``fleet``, but for its steps.

    An engine computes its steps in threads of their own, and answers HTTP in its main thread.
    """
    total = time.process_time()
    root = psutil.Process(fleet)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            engine = "serve" in process.cmdline()
            threads = [thread for thread in process.threads() if not engine or thread.id == process.pid]
            total += sum(thread.user_time + thread.system_time for thread in threads)
    return total


@dataclass
class Beside:
    """The share of the machine's processors that something else had since this was made."""

    fleet: int

    def __post_init__(self) -> None:
        self._begin, self._seconds = time.perf_counter(), seconds_beside(self.fleet)

    @property
    def share(self) -> float:
        """0..1 of all processors."""
        elapsed = time.perf_counter() - self._begin
        return (seconds_beside(self.fleet) - self._seconds) / (elapsed * (os.cpu_count() or 1))
