"""A gateway in a process of its own, and engines in theirs or none."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
FAKE_ENGINE = str(Path(__file__).with_name("fake_engine.py"))


@dataclass
class Process:
    """One that listens."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def gateway(folder: Path, upstreams: Sequence[str], *flags: str) -> Iterator[Process]:
    """``paternoster gateway`` before ``upstreams`` (URLs), which serve model ``m``; it has read its table."""
    replicas = [Replica(name=f"engine-{number}", url=url, ready=True) for number, url in enumerate(upstreams)]
    routes = folder / "routes.json"
    routes.write_text(RoutingTable(models={"m": ModelRoute(replicas=replicas)}).model_dump_json())
    with _running([PATERNOSTER, "gateway", "--routes", str(routes), "--port", "0", *flags]) as (process, line):
        found = Process(process, line.split()[-1])
        while not _ready(found.url):
            assert process.poll() is None
        yield found


@contextmanager
def fake_engine(name: str) -> Iterator[Process]:
    with _running([sys.executable, FAKE_ENGINE, name]) as (process, line):
        yield Process(process, f"http://127.0.0.1:{line.strip()}")


@contextmanager
def _running(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"exit code {process.wait()}"
        yield process, line
    finally:
        process.kill()
        process.wait()


def _ready(url: str) -> bool:
    """Its port is bound before it listens."""
    try:
        with urlopen(f"{url}/ready") as response:
            return bool(response.status == 200)
    except URLError:
        return False
