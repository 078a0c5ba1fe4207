"""A lock on a file, between processes and, where the file system is shared, between machines.

It is ``flock``. The kernel frees it when its process ends, however it ends, and Linux' NFS client (v4, or v3 with its
lock manager), CephFS and Lustre carry it to the server, which frees it when a client's lease runs out. A file with a
heartbeat would work on more file systems, but needs clocks that agree, and a process that was only slow would find its
lock taken and itself still writing. Where ``flock`` is refused, or reaches one machine alone (object stores mounted by
FUSE), two machines may fetch the same model at once: the same bytes to the same places, whose hashes are checked and
which are moved into place whole, so that it costs time and no correctness.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

POLL = 0.2
"""Seconds between two looks at a lock that another holds."""


class FileLock:
    """Shared while a model is in use, exclusive while it is fetched or evicted. Closing frees it."""

    def __init__(self, path: Path) -> None:
        """The file is made, and never removed: who waits for it would wait for another one than who comes later."""
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # NFS asks for a descriptor that may write where the lock is exclusive.
            self._number = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            self._number = os.open(path, os.O_RDONLY | flags)

    def try_exclusive(self) -> bool:
        return self._try_lock(fcntl.LOCK_EX)

    def try_shared(self) -> bool:
        return self._try_lock(fcntl.LOCK_SH)

    def wait_shared(self) -> None:
        """An exclusive holder has it for as long as a model takes to be removed or moved into place."""
        while not self.try_shared():
            time.sleep(POLL)

    def wait_exclusive(self) -> None:
        """For a lock that is held briefly."""
        while not self.try_exclusive():
            time.sleep(POLL)

    def unlock(self) -> None:
        fcntl.flock(self._number, fcntl.LOCK_UN)

    def make_inheritable(self) -> None:
        """The lock stays with the program that this process becomes."""
        os.set_inheritable(self._number, True)

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _try_lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._number, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                return False
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return True
            raise
        return True
