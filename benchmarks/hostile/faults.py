"""What is done to the processes of a fleet while it serves."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

from harness.servers import Server
from hostile.shared_fleets import Fleet


def install_faketime() -> None:
    """Debian's package, where that can be done."""
    if not _faketime() and os.geteuid() == 0 and shutil.which("apt-get"):
        for words in ("update", "install -y --no-install-recommends libfaketime"):
            subprocess.run(["apt-get", *words.split()], check=False, stdout=subprocess.DEVNULL)


def _faketime() -> list[Path]:
    return sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class Clock:
    """The wall clock of a process started with :attr:`env`; the monotonic one is left alone, as real jumps do."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        library = _faketime()
        self.available = bool(library)
        self.env: dict[str, str] = {}
        if self.available:
            self.jump("+0")
            self.env = {
                "LD_PRELOAD": str(library[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._file),
                "FAKETIME_CACHE_DURATION": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }

    def jump(self, offset: str) -> None:
        """To ``offset`` from the true time, such as ``-2h``."""
        self._file.write_text(f"{offset}\n")


async def stop_and_continue(server: Server, seconds: float) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def kill_and_restart(server: Server) -> None:
    server.end()
    await asyncio.sleep(1)
    server.start()
    await asyncio.to_thread(server.wait_ready)


async def full_disk(fleet: Fleet, seconds: float) -> None:
    """No log can grow: each write fails (EFBIG), as on a full disk."""
    limits = {server.pid: resource.prlimit(server.pid, resource.RLIMIT_FSIZE) for server in fleet.servers}
    for server in fleet.servers:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (server.log.stat().st_size, limits[server.pid][1]))
    try:
        await asyncio.sleep(seconds)
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
