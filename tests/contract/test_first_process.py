"""The commands of the images as process 1, as they are in a container: SIGTERM ends them at any moment of their start.

The kernel gives process 1 of a PID namespace no default action: a signal without a handler is lost.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from paternoster_contract.routing import RoutingTable

PATERNOSTER = Path(sys.executable).with_name("paternoster")
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
ENDS_WITHIN = 15.0
"""Seconds; what waits for the end of a drain waits for minutes."""
INTERPRETER_SECONDS = 0.5
"""CPU time in which an interpreter is there and has begun with the command; it takes a tenth of that."""
POOL = "--kv-cache-memory=50000000"
SIGTERM_STATUS = 128 + signal.SIGTERM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Skip where this user may make no namespace."""
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        reason = f"a PID namespace cannot be made here: {tried.stderr.strip()}"
        pytest.fail(reason) if os.environ.get("REQUIRE_COMPONENTS") else pytest.skip(reason)


class FirstProcess:
    """``paternoster`` with ``words`` as process 1 of a PID namespace; killed when the block ends."""

    def __init__(self, log: Path, *words: str, **environment: str) -> None:
        self.log = log
        with log.open("wb") as out:
            self._unshare = subprocess.Popen(
                [*NAMESPACE, PATERNOSTER, *words], stdout=out, stderr=subprocess.STDOUT, env=os.environ | environment
            )
        self._pid = self._first()

    def __enter__(self) -> "FirstProcess":
        return self

    def __exit__(self, *_: object) -> None:
        # With it goes process 1, and with that all that it started.
        self._unshare.kill()
        self._unshare.wait()

    def _first(self) -> int:
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        while not (found := children.read_text().split()):
            time.sleep(0.001)
        return int(found[0])

    def until_begun(self) -> None:
        """Return when it handles SIGTERM, or has computed for so long that it should."""
        while not self.handles_sigterm and self.cpu_seconds < INTERPRETER_SECONDS:
            time.sleep(0.001)

    @property
    def handles_sigterm(self) -> bool:
        caught = next(line for line in self._proc("status").splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    @property
    def cpu_seconds(self) -> float:
        return int(self._proc("schedstat").split()[0]) / 1e9

    def _proc(self, file: str) -> str:
        return Path(f"/proc/{self._pid}/{file}").read_text()

    def terminate(self) -> None:
        """SIGTERM from outside, as the kubelet sends it."""
        os.kill(self._pid, signal.SIGTERM)

    def ends(self) -> int:
        """Its exit status; raises ``TimeoutExpired``."""
        return self._unshare.wait(ENDS_WITHIN)


def terminate_at_every_moment(
    start: Callable[[], FirstProcess], started: Callable[[FirstProcess], bool], step: float = 0.05
) -> None:
    """Start again and again, with SIGTERM later each time, the last time when it has ``started``.

    ``step``: seconds from the first moment to the second; each next one comes twice as late. One that becomes ready has
    done so between the last look and the signal, or in spite of it: that one would do so every time.
    """
    seconds, over, tries = 0.0, False, 3
    while not over:
        with start() as process:
            process.until_begun()
            over = within(seconds, lambda: started(process))
            process.terminate()
            try:
                status = process.ends()
            except subprocess.TimeoutExpired:
                now = "became ready" if started(process) else "goes on"
                pytest.fail(f"SIGTERM {seconds:.2f} s after its start: it {now}\n{process.log.read_text()}")
            assert status in (0, SIGTERM_STATUS), f"SIGTERM {seconds:.2f} s after its start\n{process.log.read_text()}"
            late = not over and started(process)
        tries = tries - 1 if late else 3
        assert tries > 0, f"SIGTERM {seconds:.2f} s after its start: it became ready"
        seconds = seconds if late else max(step, 2 * seconds)


def within(seconds: float, happened: Callable[[], bool]) -> bool:
    """Whether it happens in this time; returns at once when it has."""
    deadline = time.monotonic() + seconds
    while not (seen := happened()) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
    return seen


def test_an_engine(tmp_path: Path) -> None:
    terminate_at_every_moment(
        lambda: FirstProcess(tmp_path / "log", "serve", "--port=0", "--threads=1", "--max-num-seqs=4", POOL),
        lambda process: "listening on" in process.log.read_text(),
    )


def test_an_engine_of_three_ranks(tmp_path: Path) -> None:
    flags = ("--tensor-parallel-size=3", "--dtype=float32", POOL)
    terminate_at_every_moment(
        lambda: FirstProcess(tmp_path / "log", "serve", "--port=0", "--threads=1", "--max-num-seqs=4", *flags),
        lambda process: "listening on" in process.log.read_text(),
        step=2,
    )


def test_a_gateway(tmp_path: Path) -> None:
    table = tmp_path / "routes.json"
    table.write_text(RoutingTable().model_dump_json())

    def ready(process: FirstProcess) -> bool:
        log_text = process.log.read_text()
        return "listening on" in log_text and answers(log_text.split()[-1] + "/ready")

    terminate_at_every_moment(
        lambda: FirstProcess(
            tmp_path / "log", "gateway", f"--routes={table}", "--port=0", "--shutdown-delay-seconds=0.5"
        ),
        ready,
    )


def test_an_operator_that_finds_no_api_server(tmp_path: Path) -> None:
    """It waits in a handler of kopf's, which has its own for signals."""
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{free_port()}")))
    port = free_port()
    terminate_at_every_moment(
        lambda: FirstProcess(tmp_path / "log", "operator", "-A", f"--port={port}", KUBECONFIG=str(config)),
        lambda _: answers(f"http://127.0.0.1:{port}/healthz"),
    )


def kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False
