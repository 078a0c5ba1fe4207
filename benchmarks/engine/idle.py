"""Share of a CPU that a served engine takes while no client sends a request.

    python benchmarks engine.idle --seconds 60 --json result.json

Processor time of ``paternoster serve`` and all its threads, from the kernel's accounts, after the model is loaded and
one request was answered. Linux.
"""

import json
import time
import urllib.request

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.processes import cpu_seconds
from harness.results import write_json
from harness.servers import START_SECONDS, served

SETTLE_SECONDS = 5


def send_request(url: str) -> None:
    body = json.dumps({"prompt": "A paternoster is", "max_tokens": 8}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=START_SECONDS).read()


def main() -> int:
    parser = RunnerParser(__doc__, json="write the figures")
    parser.add_number("--seconds", 60, "how long to look")
    options, flags = parser.parse_known_args()
    with served(*flags) as engine:
        send_request(engine.url)
        time.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(engine.pid), time.monotonic()
        for _ in tqdm(range(options.seconds), unit="s", disable=None):
            time.sleep(1)
        used, seconds = cpu_seconds(engine.pid) - before, time.monotonic() - began
    print(f"{used:.2f} s of processor time in {seconds:.0f} s: {used / seconds:.2%} of one CPU")
    write_json(options.json, {"cpu_seconds": used, "seconds": seconds, "share": used / seconds})
    return 0
