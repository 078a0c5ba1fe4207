"""A child process that logs to a file, has its own session, and dies with its parent."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Linux prctl(2): however this program ends, its children are told to end too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """One run of a program. A terminal's Ctrl-C does not reach it: its parent decides."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], log: Path) -> "Process":
        """Start ``command`` with ``env`` over this process's own environment; output is appended to ``log``."""
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env={**os.environ, **env},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        finally:
            os.close(descriptor)
        return cls(child)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.returncode is None

    async def wait(self) -> int:
        """Exit status, negative for a signal."""
        return await self._child.wait()

    async def end(self, grace_seconds: float) -> int:
        """SIGTERM, and SIGKILL when it has not ended in time; returns its exit status."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            self._child.send_signal(number)
