"""One pod as a process: started, probed, restarted with backoff, drained."""

import asyncio
import logging
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from paternoster_operator.local.process import Process

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""A process that ran this long before it ended starts again with the first backoff."""
HOST = "127.0.0.1"
_OVERRIDDEN = ("--host", "--port")


class LocalPod:
    """A pod of this machine. Its document is kept as a kubelet would keep it."""

    def __init__(
        self,
        name: str,
        namespace: str,
        template: Mapping[str, Any],
        template_hash: str,
        logs: Path,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.template_hash = template_hash
        self.created = time.monotonic()
        self.process: Process | None = None
        self._log = logs / f"{name}.log"
        self._on_change = on_change
        self._restarts = 0
        self._ready = False
        self._waiting: tuple[str, str] | None = ("ContainerCreating", "")
        self._ended = asyncio.Event()
        self._deleting = False
        self._session: aiohttp.ClientSession | None = None
        self.port = free_port()
        spec = deepcopy(dict(template["spec"]))
        for port in spec["containers"][0].get("ports", []):
            port["containerPort"] = self.port
        self._metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "labels": dict(template["metadata"]["labels"]),
            "creationTimestamp": _now(),
        }
        self._spec = spec
        self._task = asyncio.create_task(self._supervise())

    @property
    def ready(self) -> bool:
        return self._ready and not self._deleting

    @property
    def deleting(self) -> bool:
        return self._deleting

    @property
    def deletion_cost(self) -> int:
        """As the annotation of that name says; pods that cost less go first."""
        return int(self._metadata.get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost", "0"))

    def document(self) -> dict[str, Any]:
        """The pod as an API server would give it."""
        running = self.process is not None and self.process.alive
        state: dict[str, Any] = {"running": {}} if running else {"waiting": {}}
        if not running and self._waiting is not None:
            state = {"waiting": {"reason": self._waiting[0], "message": self._waiting[1]}}
        ready = "True" if self._ready else "False"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata,
            "spec": self._spec,
            "status": {
                "phase": "Running" if running else "Pending",
                "podIP": HOST,
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "ContainersReady", "status": ready},
                    {"type": "Ready", "status": ready},
                ],
                "containerStatuses": [
                    {
                        "name": self._spec["containers"][0]["name"],
                        "ready": self._ready,
                        "restartCount": self._restarts,
                        "state": state,
                    }
                ],
            },
        }

    async def delete(self, *, at_once: bool = False) -> None:
        """Two phases: out of the routing table, then SIGTERM and time to finish; returns when the process is gone."""
        if self._deleting:
            await self._ended.wait()
            return
        self._deleting = True
        self._metadata["deletionTimestamp"] = _now()
        self._on_change()
        if self.process is not None and self.process.alive:
            if at_once:
                self.process.kill()
            else:
                await asyncio.sleep(self._pre_stop_seconds() if self._ready else 0)
                await self.process.end(self._spec.get("terminationGracePeriodSeconds", 30))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._ended.set()

    async def _supervise(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        async with aiohttp.ClientSession() as self._session:
            while not self._deleting:
                started = time.monotonic()
                try:
                    self.process = await Process.start(self._command(), self._env(), self._log)
                except OSError as error:
                    self._waiting = ("CreateContainerError", str(error))
                else:
                    code = await self._watch(self.process)
                    self._waiting = ("CrashLoopBackOff", f"exit status {code}; see {self._log}")
                    log.warning("pod %s ended with exit status %s; see %s", self.name, code, self._log)
                self._set_ready(False, always_tell=True)
                if self._deleting:
                    return
                self._restarts += 1
                backoff = FIRST_BACKOFF_SECONDS if time.monotonic() - started > STEADY_SECONDS else backoff
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def _watch(self, process: Process) -> int:
        """Probe until the process ends; returns its exit status."""
        probes = asyncio.create_task(self._probe(process))
        try:
            return await process.wait()
        finally:
            probes.cancel()
            await asyncio.gather(probes, return_exceptions=True)

    async def _probe(self, process: Process) -> None:
        container = self._spec["containers"][0]
        readiness, liveness = container["readinessProbe"], container["livenessProbe"]
        unready = dead = 0
        next_liveness = float("inf")
        while True:
            ok = await self._get(readiness)
            unready = 0 if ok else unready + 1
            if ok and not self._ready:
                self._set_ready(True)
                next_liveness = time.monotonic() + liveness["periodSeconds"]
            elif self._ready and unready >= readiness["failureThreshold"]:
                self._set_ready(False)
            if time.monotonic() >= next_liveness:
                next_liveness += liveness["periodSeconds"]
                dead = 0 if await self._get(liveness) else dead + 1
                if dead >= liveness["failureThreshold"]:
                    log.warning("pod %s does not answer its liveness probe: killing it", self.name)
                    process.kill()
                    return
            await asyncio.sleep(readiness["periodSeconds"] if self._ready else 0.5)

    async def _get(self, probe: Mapping[str, Any]) -> bool:
        assert self._session is not None
        url = f"http://{HOST}:{self.port}{probe['httpGet']['path']}"
        try:
            timeout = aiohttp.ClientTimeout(total=probe["timeoutSeconds"])
            async with self._session.get(url, timeout=timeout) as response:
                return response.status < 400
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _set_ready(self, ready: bool, *, always_tell: bool = False) -> None:
        changed, self._ready = self._ready != ready, ready
        if changed or always_tell:
            self._on_change()

    def _pre_stop_seconds(self) -> float:
        hook = self._spec["containers"][0].get("lifecycle", {}).get("preStop", {})
        return float(hook.get("sleep", {}).get("seconds", 0))

    def _command(self) -> list[str]:
        """The container's command on this machine: our own program, on a port of ours."""
        container = self._spec["containers"][0]
        command: list[str] = [*container["command"], *container.get("args", [])]
        kept: list[str] = []
        words = iter(command[1:])
        for word in words:
            if word in _OVERRIDDEN:
                next(words, None)
            else:
                kept.append(word)
        return [find_program(command[0]), *kept, "--host", HOST, "--port", str(self.port)]

    def _env(self) -> dict[str, str]:
        return {
            entry["name"]: entry["value"] for entry in self._spec["containers"][0].get("env", []) if "value" in entry
        }


def find_program(name: str) -> str:
    """The program beside this interpreter, else on PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
