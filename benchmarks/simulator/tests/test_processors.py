"""What runs beside the steps is counted."""

import os
import subprocess
import sys
import time

import pytest

from simulator.processors import Beside, seconds_beside

BURNT = 1.0
WORKER = f"""
import sys, threading, time

def compute():
    while time.thread_time() < {BURNT}:
        pass
    print("done", flush=True)
    threading.Event().wait()

sys.stdin.readline()
threading.Thread(target=compute, daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.parametrize(("role", "counts"), [("serve", False), ("gateway", True)])
def test_all_counts_but_the_threads_of_engines(role: str, counts: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        begin, before, since = time.perf_counter(), seconds_beside(process.pid), Beside(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        share = since.share
        machine = (time.perf_counter() - begin) * (os.cpu_count() or 1)
        beside = seconds_beside(process.pid) - before
        process.communicate()
    assert (beside > BURNT / 2) is counts
    assert (share * machine > BURNT / 2) is counts
