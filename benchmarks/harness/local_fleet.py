"""``paternoster up`` as a process of its own, and its engines as they answer to ``/stats``."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from paternoster_contract.http import paths
from paternoster_contract.stats import EngineStats

READY_WITHIN = 180.0
STOP_WITHIN = 60.0
PATERNOSTER = Path(sys.executable).with_name("paternoster")


@dataclass(frozen=True, slots=True)
class Sample:
    """All engines at one moment of a real run, in seconds of ``time.perf_counter``."""

    time: float
    engines: tuple[EngineStats, ...]


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """The document of a fleet."""
    head = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": {"name": name}}
    return {**head, "spec": spec}


class FleetError(Exception):
    """The fleet did not come up or did not stay."""


class LocalFleet:
    """Use as an async context manager: ready inside, drained after."""

    ready_within = READY_WITHIN

    def __init__(
        self,
        manifest: dict[str, Any],
        replicas: int,
        folder: Path,
        secrets: Sequence[dict[str, Any]] = (),
        command: Sequence[str | Path] = (PATERNOSTER,),
        flags: Sequence[str | Path] = (),
    ) -> None:
        """``secrets``: objects that the manifest names; ``command`` is started as ``paternoster``, with more flags."""
        self.endpoint = ""
        self.samples: list[Sample] = []
        self._replicas = replicas
        self._folder = folder
        self._secrets = secrets
        self._command = command
        self._flags = flags
        self._manifest = folder / "manifest.yaml"
        self.apply(manifest)
        self._engines: list[str] = []

    def apply(self, manifest: dict[str, Any]) -> None:
        """Another manifest of the same fleet, which ``paternoster up`` follows."""
        self._manifest.write_text("\n---\n".join(map(json.dumps, (*self._secrets, manifest))), encoding="utf-8")

    async def __aenter__(self) -> "LocalFleet":
        # Folders of its own: another session on this machine keeps its state.
        env = {**os.environ, "XDG_RUNTIME_DIR": str(self._folder), "XDG_STATE_HOME": str(self._folder)}
        flags = ["up", "-f", str(self._manifest), "--port", "0", "--no-view", "--log-dir", str(self._folder / "logs")]
        flags += map(str, self._flags)
        with (self._folder / "up.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, *flags, stdout=log, stderr=log, env=env, start_new_session=True
            )
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        try:
            async with asyncio.timeout(self.ready_within):
                while not await self._ready():  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(0.5)
        except TimeoutError:
            await self.__aexit__()
            raise FleetError(
                f"{self._replicas} replicas were not ready within {self.ready_within:g} s: {self._log}"
            ) from None
        except FleetError:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(self._process.wait(), STOP_WITHIN)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    @property
    def pid(self) -> int:
        """Process of ``paternoster up``; gateway and engines are its children."""
        return self._process.pid

    def engine_seconds(self) -> float:
        """Processor time that the engines have taken."""
        times = [process.cpu_times() for process in self._children() if "serve" in process.cmdline()]
        return float(sum(each.user + each.system for each in times))

    async def sample(self) -> None:
        """Ask every engine once."""

        async def read_stats(url: str) -> EngineStats:
            async with self._session.get(url + paths.STATS) as response:
                return EngineStats.model_validate(await response.json())

        engines = await asyncio.gather(*(read_stats(url) for url in self._engines))
        self.samples.append(Sample(time.perf_counter(), tuple(engines)))

    async def keep_sampling(self, period: float) -> None:
        """Until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(period)

    @property
    def _log(self) -> str:
        return str(self._folder / "up.log")

    async def _ready(self) -> bool:
        if self._process.returncode is not None:
            raise FleetError(f"paternoster up ended with exit code {self._process.returncode}: {self._log}")
        state = self._folder / "paternoster" / "up.json"
        if not state.exists():
            return False
        try:
            self.endpoint = json.loads(state.read_text(encoding="utf-8"))["endpoint"]
        except ValueError:
            return False
        self._engines = await self._find_engines()
        return len(self._engines) == self._replicas

    async def _find_engines(self) -> list[str]:
        """URLs that answer to ``/stats``, of ready engines."""
        ready = []
        for line in (process.cmdline() for process in self._children()):
            if "serve" in line:
                port, admin = (line[line.index(flag) + 1] for flag in ("--port", "--admin-port"))
                if await self._answers(f"http://127.0.0.1:{port}{paths.READY}"):
                    ready.append(f"http://127.0.0.1:{admin}")
        return sorted(ready)

    def _children(self) -> list[psutil.Process]:
        return list(psutil.Process(self.pid).children(recursive=True))

    async def _answers(self, url: str) -> bool:
        try:
            async with self._session.get(url) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False
