"""A child process that logs to a file, has its own session, and dies with its parent."""

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_TAIL_BYTES = 2**14


def _die_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    """What a child does before it becomes the program: by Linux prctl(2), it gets a signal when ``parent`` ends."""

    def prepare_child() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return prepare_child


class Process:
    """One run of a program. A terminal's Ctrl-C does not reach it: its parent decides."""

    def __init__(self, child: asyncio.subprocess.Process, log: Path, log_start: int) -> None:
        self._child = child
        self._log = log
        self._log_start = log_start

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        inherited: Sequence[int] = (),
        orphan_signal: signal.Signals = signal.SIGTERM,
    ) -> "Process":
        """Start ``command`` with ``env`` over this process's own environment; output is appended to ``log``.

        ``inherited``: descriptors that it has under the same numbers. ``orphan_signal``: it gets this signal when this
        process ends without ending it. Raises ``OSError``.
        """
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_log(log)
        try:
            log_start = os.fstat(descriptor).st_size
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env={**os.environ, **env},
                start_new_session=True,
                pass_fds=inherited,
                preexec_fn=_die_with(os.getpid(), orphan_signal),
            )
        finally:
            os.close(descriptor)
        return cls(child, log, log_start)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.returncode is None

    async def wait(self) -> int:
        """Exit status, negative for a signal. What the program started itself ends with it."""
        status = await self._child.wait()
        self._kill_group()
        return status

    def terminate(self) -> None:
        if self.alive:
            self._child.terminate()

    def kill(self) -> None:
        if self.alive:
            self._kill_group()

    def last_lines(self) -> list[str]:
        """The last lines that this run wrote: one of them mostly says why it ended."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def open_log(path: Path) -> int:
    """Open ``path`` to append to it: a file of this user that no other one reads. Raises ``OSError`` that names it.

    The folder may be one that every user writes to, such as /tmp, and the name can be guessed: what another user has
    put there is neither written to nor given this user's permissions.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise PermissionError(errno.EPERM, "is no regular file of this user's under this name alone", str(path))
        os.fchmod(descriptor, 0o600)  # an older version may have made it
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
