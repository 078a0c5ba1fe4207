"""A fleet on this machine: local cluster, operator, its HTTP, and a gateway process before it."""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from paternoster_contract import paths
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.local import LocalCluster
from paternoster_operator.cluster.port import Key
from paternoster_operator.local.pod import find_program
from paternoster_operator.local.process import Process
from paternoster_operator.publish import build_app, serve
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
GATEWAY_GRACE_SECONDS = 10.0


def state_file() -> Path:
    """Where a running session says how to reach it (XDG base directories)."""
    base = (
        os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    )
    return Path(base) / "paternoster" / "up.json"


class LocalSession:
    """Start it, put resources into it, close it."""

    def __init__(self, port: int, logs: Path) -> None:
        self.logs = logs
        self.endpoint = f"http://{HOST}:{port}"
        self._port = port
        self.cluster = LocalCluster(lambda key: self.operator.enqueue(key), logs)
        self.operator = Operator(self.cluster, Settings(gateway_url=self.endpoint))
        self._wanted: dict[Key, LLMDeployment] = {}
        self._gateway: Process | None = None
        self._supervision: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Operator, its HTTP and the gateway; the state file tells others of them."""
        self._http, port = await serve(build_app(self.operator, self.cluster.objects), HOST, 0)
        self.server = f"http://{HOST}:{port}"
        self.operator.start()
        self._supervision = asyncio.create_task(self._keep_gateway())
        path = state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"server": self.server, "endpoint": self.endpoint, "pid": os.getpid()}) + "\n")

    async def want(self, resources: Sequence[LLMDeployment]) -> list[str]:
        """Make these the resources there are; returns a line for each that changed."""
        wanted = {Key(r.metadata.namespace, r.metadata.name): r for r in resources}
        said = []
        for key in self._wanted.keys() - wanted.keys():
            said.append(f"{key.name}: removed; its replicas finish their requests")
            asyncio.get_running_loop().create_task(self.cluster.remove(key)).add_done_callback(_tell_failure)
        for key, resource in wanted.items():
            if self._wanted.get(key) != resource:
                said.append(f"{key.name}: {'changed' if key in self._wanted else 'created'}")
                self.cluster.put(resource)
        self._wanted = wanted
        return said

    async def close(self) -> None:
        """Drain every engine, then end the gateway."""
        await self.operator.stop()
        await self.cluster.close()
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)
        if self._gateway is not None:
            await self._gateway.end(GATEWAY_GRACE_SECONDS)
        await self._http.cleanup()
        state_file().unlink(missing_ok=True)

    def kill(self) -> None:
        """End everything now."""
        self.cluster.kill()
        if self._gateway is not None:
            self._gateway.kill()

    async def _keep_gateway(self) -> None:
        command = [
            find_program("paternoster"), "gateway", "--host", HOST, "--port", str(self._port),
            "--routes", self.server + paths.ROUTES,
        ]  # fmt: skip
        while True:
            self._gateway = await Process.start(command, {}, self.logs / "gateway.log")
            code = await self._gateway.wait()
            log.warning("the gateway ended with exit status %d; see %s; again in 1 s", code, self.logs / "gateway.log")
            await asyncio.sleep(1)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("removing failed", exc_info=task.exception())
