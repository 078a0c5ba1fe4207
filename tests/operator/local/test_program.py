"""Programs that are kept running."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.local import program as programs
from paternoster_operator.local.ports import reserve_port
from paternoster_operator.local.probe import Probe, Probes
from paternoster_operator.local.program import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    Launch,
    Program,
    backoff_seconds,
    find_program,
)
from paternoster_operator.pods.log_lines import find_cause_line

PARENT = """
import asyncio, sys
from pathlib import Path
from paternoster_operator.local.process import Process

async def main():
    process = await Process.start(sys.argv[2:], {}, Path(sys.argv[1]))
    await process.wait()

asyncio.run(main())
"""


ENDING = """
import http.server, signal, socket, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.server_activate()
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
time.sleep(1.5)
print("answered all", flush=True)
"""
"""Listens no more after SIGTERM, and takes its time to end."""


async def test_a_program_that_ends_is_not_killed_because_it_listens_no_more(tmp_path: Path) -> None:
    port = reserve_port()
    log = tmp_path / "log"
    probe = Probe("/", period_seconds=0.1, timeout_seconds=1, failure_threshold=100)
    probes = Probes(probe, probe, Probe("/", period_seconds=0.1, timeout_seconds=0.5, failure_threshold=2))
    launch = Launch([sys.executable, "-c", ENDING, str(port.fileno())], {}, port.url, [port])
    program = Program("ending", lambda: launch, probes, log, lambda: None)
    assert await program.first_run()
    await program.stop(grace_seconds=30)
    port.close()
    assert log.read_text().endswith("answered all\n")


READY = """
import http.server, socket, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.server_activate()
threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(1)
print("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.", flush=True)
print("  warnings.warn('resource_tracker', flush=True)", flush=True)
"""
"""Serves for a second, and ends as vLLM does."""


@pytest.mark.parametrize(("served_seconds", "forgiven"), [(0.1, True), (60.0, False)])
async def test_a_run_that_served_is_followed_by_the_first_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_seconds: float, forgiven: bool
) -> None:
    waits: list[int] = []
    reported: list[str] = []

    def wait_by(failures: int) -> float:
        waits.append(failures)
        reported.append(program.last_end)
        return 0.0

    monkeypatch.setattr(programs, "SERVED_SECONDS", served_seconds)
    monkeypatch.setattr(programs, "backoff_seconds", wait_by)
    port = reserve_port()
    probe = Probe("/", period_seconds=0.05, timeout_seconds=1, failure_threshold=1000)
    launch = Launch([sys.executable, "-c", READY, str(port.fileno())], {}, port.url, [port])
    find_cause = partial(find_cause_line, RuntimeType.VLLM)
    program = Program("p", lambda: launch, Probes(probe, probe, probe), tmp_path / "log", lambda: None, find_cause)
    while len(waits) < 3:
        await asyncio.sleep(0.02)
    await program.stop(grace_seconds=5)
    port.close()
    assert waits[:3] == ([0, 0, 0] if forgiven else [0, 1, 2])
    assert all("Worker proc VllmWorker-0 died unexpectedly (exit code: -9)" in end for end in reported[:3])


def test_backoff_doubles_up_to_the_longest() -> None:
    waits = [backoff_seconds(failures) for failures in range(12)]
    assert waits[:3] == [FIRST_BACKOFF_SECONDS, 2 * FIRST_BACKOFF_SECONDS, 4 * FIRST_BACKOFF_SECONDS]
    assert waits == sorted(waits)
    assert waits[-1] == backoff_seconds(10_000) == LONGEST_BACKOFF_SECONDS


def test_programs_are_found_beside_the_interpreter_and_paths_are_kept(program: Path) -> None:
    assert find_program("paternoster") == str(Path(sys.executable).with_name("paternoster"))
    assert find_program(str(program)) == str(program)
    assert find_program("no-such-program") == "no-such-program"


async def test_a_program_ends_with_its_parent_and_not_with_the_terminal(
    program: Path, tmp_path: Path, fleet: Any
) -> None:
    log = tmp_path / "logs" / "child.log"
    command = [sys.executable, "-c", PARENT, str(log), str(program)]
    parent = await asyncio.create_subprocess_exec(*command)
    await fleet.until(lambda: log.exists() and "pid" in log.read_text())
    child = int(re.findall(r"pid (\d+)", log.read_text())[0])
    assert os.getsid(child) == child
    assert os.getsid(child) != os.getsid(parent.pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await fleet.until(lambda: not fleet.alive(child))


def test_signals_blocked_in_the_parent_are_not_blocked_in_the_program(tmp_path: Path) -> None:
    script = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n{PARENT}"
    log = tmp_path / "log"
    mask = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    subprocess.run([sys.executable, "-c", script, str(log), sys.executable, "-c", mask], check=True, timeout=30)
    assert log.read_text().strip() == "set()"
