"""Servers that start as forks of one process with everything imported: half of what an engine's start costs.

``python benchmarks/harness/forked.py`` reads a line of JSON for each server (command, log, environment), forks, runs
the command ``paternoster`` in the fork and writes its process id.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

IMPORTED = ("torch", "uvicorn", "uvloop", "paternoster_engine.build", "paternoster_engine.server.app",
            "paternoster_engine.server.process", "paternoster_contract.cli.subcommands")  # fmt: skip


class Start(TypedDict):
    """One line that the process reads."""

    command: list[str]
    log: str
    env: dict[str, str]


class Forking:
    """The process that forks; ends with the block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> "Forking":
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def fork_server(self, start: Start) -> "ForkedProcess":
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(start) + "\n")
            self._process.stdin.flush()
            return ForkedProcess(int(self._process.stdout.readline()))


@dataclass
class ForkedProcess:
    """What is needed of a ``Popen``, of a process that another one started."""

    pid: int
    returncode: int | None = field(default=None)

    def poll(self) -> int | None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return None
        return -1

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(0.01)
        return status


def _run_command(start: Start) -> None:
    """In the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(start["log"]).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.update(start["env"])
    sys.argv = start["command"]
    from paternoster_contract.cli.command import main

    sys.exit(main())


def run_forks() -> None:
    """Until its input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for module in IMPORTED:
        importlib.import_module(module)
    while line := sys.stdin.readline():
        start: Any = json.loads(line)
        if not (pid := os.fork()):
            _run_command(start)
        print(pid, flush=True)


if __name__ == "__main__":
    run_forks()
