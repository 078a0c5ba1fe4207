"""The engine's side of a process with limits."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from paternoster_engine.limited import frames

T = TypeVar("T")
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TZ")
"""The variables that the process gets; the engine's others may hold secrets."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the kernel lets a limited process use."""

    cpu_time: float
    """Seconds of processor time for each request."""
    memory: int
    """Bytes of address space."""
    stack: int | None = None
    """Bytes of stack; None for the engine's own limit."""
    start_time: float | None = None
    """Seconds of processor time for the start; None: as for a request."""


class ProcessEnded(RuntimeError):
    """The process ended instead of answering; ``status`` is below 0 for the signal that ended it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


def repeat_if_lost(request: Callable[[], T], lost: type[Exception]) -> T:
    """Run ``request``, and once more where it raises ``lost``: its process was killed from outside, or stood still."""
    with suppress(lost):
        return request()
    return request()


class LimitedProcess:
    """Runs a module that calls :func:`~paternoster_engine.limited.worker.serve_requests`. One request at a time."""

    def __init__(self, module: str, limits: ProcessLimits) -> None:
        self._limits = limits
        # Safe path: the working directory must not come before the installed packages.
        command = [sys.executable, "-P", "-m", module]
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def prepare_process(self, given: Any, wall_time: float) -> dict[str, Any]:
        """Send what the process needs for all requests; answers and raises as :meth:`request_answer`."""
        return self.request_answer({"limits": asdict(self._limits), "given": given}, wall_time)

    def request_answer(self, request: Mapping[str, Any], wall_time: float) -> dict[str, Any]:
        """Wait for the answer, at most ``wall_time`` seconds; its ``error`` is the reason of a refusal.

        Raises :class:`ProcessEnded`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = threading.Timer(wall_time, self._process.kill)
        deadline.start()
        try:
            frames.write_frame(self._process.stdin, request)
            answer: dict[str, Any] = frames.read_frame(self._process.stdout)
            return answer
        except (OSError, EOFError) as error:
            raise ProcessEnded(self._process.wait()) from error
        finally:
            deadline.cancel()

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
