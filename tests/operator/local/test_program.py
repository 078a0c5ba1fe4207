"""Programs that are kept running."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
