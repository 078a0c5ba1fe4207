"""The engine's side of a process with limits."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paternoster_engine.limited import frames

ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TZ")
"""What the process is given of the engine's environment, which may hold secrets."""


@dataclass(frozen=True, slots=True)
class Limits:
    cpu_time: float
    """Seconds of a processor for each request."""
    memory: int
    """Bytes of address space."""
    stack: int | None = None
    """Bytes; None for what the engine itself has."""
    start_time: float | None = None
    """Seconds of a processor for the start; None: as for a request."""


class ProcessEnded(RuntimeError):
    """The process ended instead of answering; ``status`` is below 0 for the signal that ended it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


class LimitedProcess:
    """Runs a module that calls :func:`~paternoster_engine.limited.worker.serve`. One request at a time."""

    def __init__(self, module: str, limits: Limits) -> None:
        self._limits = limits
        # Safe path: the folder that this was started in must not come before the installed packages.
        command = [sys.executable, "-P", "-m", module]
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, given: Any, wall_time: float) -> dict[str, Any]:
        """The first request: what the process needs for all others; answered as :meth:`ask`."""
        return self.ask({"limits": asdict(self._limits), "given": given}, wall_time)

    def ask(self, request: Mapping[str, Any], wall_time: float) -> dict[str, Any]:
        """The answer, in which ``error`` says why there is none; waits at most ``wall_time`` seconds.

        Raises :class:`ProcessEnded`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(wall_time, self._process.kill)
        late.start()
        try:
            frames.write(self._process.stdin, request)
            answer: dict[str, Any] = frames.read(self._process.stdout)
            return answer
        except (OSError, EOFError) as error:
            raise ProcessEnded(self._process.wait()) from error
        finally:
            late.cancel()

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
