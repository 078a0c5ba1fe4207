"""A local cluster whose engines are fakes: real processes, real probes, no model."""

import asyncio
import re
import stat
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.local.local_cluster import LocalCluster

KEY = Key("lifts", "ride")
ROOTS = RootKeys(["admin-root"])


class FakeFleet:
    """One LLMDeployment in a local cluster, with the engines' program replaced."""

    def __init__(self, cluster: LocalCluster, program: Path, document: Callable[..., dict[str, Any]]) -> None:
        self.cluster = cluster
        self.changes: list[Key] = []
        self._program = program
        self._document = document

    async def apply(
        self, replicas: int, env: dict[str, str] | None = None, roots: RootKeys = ROOTS, **spec: Any
    ) -> None:
        """What the operator does: put the resource's children, with the given environment for the engine."""
        self.cluster.put(parse_resource(self._document(**spec)))
        resource = parse_resource(dict(self.cluster.get(KEY) or {}))
        for child in build_children(resource, replicas, roots):
            if child["kind"] == "Deployment":
                pod = child["spec"]["template"]["spec"]
                container = pod["containers"][0]
                container["command"] = [str(self._program), "serve"]
                own = [{"name": name, "value": value} for name, value in (env or {}).items()]
                container["env"] = [*container.get("env", ()), *own]
                container["lifecycle"]["preStop"]["sleep"]["seconds"] = 0
                container["readinessProbe"] |= {"periodSeconds": 0.1, "failureThreshold": 2}
                container["livenessProbe"] |= {"periodSeconds": 0.1, "failureThreshold": 3}
                pod["terminationGracePeriodSeconds"] = 10
                self.adjust(child)
            await self.cluster.apply(child)

    def adjust(self, deployment: dict[str, Any]) -> None:
        """Replaced by a test that needs another Deployment."""

    async def until(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """The first true value of ``condition``; fails when none came in time."""
        async with asyncio.timeout(seconds):
            while not (value := condition()):
                await asyncio.sleep(0.02)
        return value

    async def until_ready(self, count: int) -> list["PodFacts"]:
        """The pods, once ``count`` of them serve and no other is there."""
        await self.until(lambda: len(self.pods) == len(self.ready) == count)
        return self.pods

    @property
    def pods(self) -> list["PodFacts"]:
        return [PodFacts.of(pod) for pod in self.cluster.list_pods(KEY)]

    @property
    def ready(self) -> list["PodFacts"]:
        """The pods that serve."""
        return [pod for pod in self.pods if pod.ready and not pod.deleting]

    def pod(self, name: str) -> "PodFacts":
        return next(pod for pod in self.pods if pod.name == name)

    @property
    def status(self) -> dict[str, Any]:
        deployment = self.cluster.get_child(KEY, "Deployment")
        return {} if deployment is None else dict(deployment["status"])

    def log(self, pod: str) -> str:
        return (self.cluster.logs / f"{pod}.log").read_text()

    def pid(self, pod: str) -> int:
        """Process id of the pod's current run."""
        return int(re.findall(r"^pid (\d+)", self.log(pod), re.MULTILINE)[-1])

    @staticmethod
    def alive(pid: int) -> bool:
        """Whether the process runs; one that ended and waits to be reaped does not."""
        try:
            return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class PodFacts:
    """What a test asks of a pod's document."""

    name: str
    ready: bool
    deleting: bool
    phase: str
    restarts: int
    waiting: str
    """``reason: message`` while its container waits."""
    port: int
    labels: dict[str, str]
    annotations: dict[str, str]

    @classmethod
    def of(cls, pod: Any) -> "PodFacts":
        status, container = pod["status"], pod["status"]["containerStatuses"][0]
        waiting = container["state"].get("waiting", {})
        return cls(
            name=pod["metadata"]["name"],
            ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"]),
            deleting="deletionTimestamp" in pod["metadata"],
            phase=status["phase"],
            restarts=container["restartCount"],
            waiting=": ".join(filter(None, (waiting.get("reason"), waiting.get("message")))),
            port=pod["spec"]["containers"][0]["ports"][0]["containerPort"],
            labels=pod["metadata"]["labels"],
            annotations=pod["metadata"].get("annotations", {}),
        )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The fake engine as a program."""
    path = tmp_path / "fake-engine"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_engine.py")} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
async def fleet(tmp_path: Path, program: Path, document: Callable[..., dict[str, Any]]) -> AsyncIterator[FakeFleet]:
    changes: list[Key] = []
    cluster = LocalCluster(changes.append, tmp_path / "logs")
    fake = FakeFleet(cluster, program, document)
    fake.changes = changes
    yield fake
    cluster.kill()
    await cluster.close()
