"""Programs that run for as long as the cluster does: started with a log, stopped by the process that started them."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class StartError(Exception):
    """A program did not come up, or has ended; the text has the end of its log."""


class Service:
    """One program. ``stop`` sends SIGTERM, and SIGKILL after ``grace`` seconds."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log_file = log_file
        self.env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                preexec_fn=_die_with_parent,
            )

    def stop(self, grace: float = 10) -> None:
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def until(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for ``ready()``; raises :class:`StartError` when the program ends first, or time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.check_alive()
            if time.monotonic() > deadline:
                raise self._describe_error("is not ready")
            time.sleep(0.1)

    def check_alive(self) -> None:
        """Raise :class:`StartError` where the program has ended."""
        if not self.alive:
            raise self._describe_error("has ended")

    def _describe_error(self, state: str) -> StartError:
        return StartError(f"{self.name} {state} ({self.log_file}):\n{tail(self.log_file)}")


def tail(file: Path, lines: int = 20) -> str:
    """The last lines of a log."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
