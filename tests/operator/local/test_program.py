"""Programs that are kept running."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from paternoster_operator.local.program import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
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
    command = [sys.executable, "-c", PARENT, str(log), str(program), "--host", "127.0.0.1", "--port", "0"]
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
