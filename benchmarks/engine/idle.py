"""Share of a CPU that a served engine takes while no client sends a request.

    python benchmarks engine.idle --seconds 60 --json result.json

Processor time of ``paternoster serve`` and all its threads, from the kernel's accounts, after the model is loaded and
one request was answered. Linux.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.results import write_json

START_SECONDS = 600
"""How long a busy machine may take to load the model."""
SETTLE_SECONDS = 5


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SERVE = (str(Path(sys.executable).with_name("paternoster")), "serve")


def serve(
    flags: Sequence[str], command: Sequence[str] = SERVE, **environment: str
) -> tuple[subprocess.Popen[str], str]:
    """A server that is ready, and its address; raises ``RuntimeError`` when it ends before."""
    words = [*command, "--port", "0", *flags]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(r"listening on (http://\S+)", line):
            return process, found[1]
    raise RuntimeError(f"paternoster serve ended with {process.wait()} before it listened")


def send_request(url: str) -> None:
    body = json.dumps({"prompt": "A paternoster is", "max_tokens": 8}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=START_SECONDS).read()


def main() -> int:
    parser = RunnerParser(__doc__, json="write the figures")
    parser.add_number("--seconds", 60, "how long to look")
    options, flags = parser.parse_known_args()
    process, url = serve(flags)
    try:
        send_request(url)
        time.sleep(SETTLE_SECONDS)
        before, started = cpu_seconds(process.pid), time.monotonic()
        for _ in tqdm(range(options.seconds), unit="s", disable=None):
            time.sleep(1)
        used, seconds = cpu_seconds(process.pid) - before, time.monotonic() - started
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)
    print(f"{used:.2f} s of processor time in {seconds:.0f} s: {used / seconds:.2%} of one CPU")
    write_json(options.json, {"cpu_seconds": used, "seconds": seconds, "share": used / seconds})
    return 0
