"""Files and folders of a local session that no other user of the machine may read."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from paternoster_operator.local.state import sessions_folder, state_folder


class SessionFolder:
    """One folder for what a session must not leave behind; locked while its process lives."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Take it away."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def session_folder() -> SessionFolder:
    """A new folder of a session; those whose session has ended without taking theirs away are taken away."""
    private_folder(state_folder())
    sessions = private_folder(sessions_folder())
    for path in sessions.iterdir():
        if (lock := _lock_folder(path)) is not None:
            SessionFolder(path, lock).close()
    path = Path(tempfile.mkdtemp(prefix="session-", dir=sessions))
    lock = _lock_folder(path)
    if lock is None:
        raise OSError(f"{path} is another session's")
    return SessionFolder(path, lock)


def is_locked(folder: Path) -> bool:
    """Whether a session runs whose folder this is."""
    lock = _lock_folder(folder)
    if lock is not None:
        os.close(lock)
    return lock is None and folder.is_dir()


def private_folder(path: Path) -> Path:
    """``path`` as a folder that this user alone reads; raises ``OSError`` for a link and another user's folder."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "is no folder of this user's", str(path))
    path.chmod(0o700)
    return path


def _lock_folder(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None where another process has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
