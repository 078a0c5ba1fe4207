"""A fleet on this machine: local cluster, operator, its HTTP, and a gateway process before it."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex

from paternoster_contract.http import paths
from paternoster_contract.supervise import supervise_task
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.local.local_cluster import LocalCluster
from paternoster_operator.local.ports import HOST, ReservedPort
from paternoster_operator.local.private import private_folder, session_folder
from paternoster_operator.local.probe import Probe, Probes
from paternoster_operator.local.program import Launch, Program, find_program
from paternoster_operator.local.secrets import write_privately
from paternoster_operator.local.state import SESSION_FILE, state_file
from paternoster_operator.local.unsupported import list_unused, without_unused
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

GATEWAY_GRACE_SECONDS = 10.0
"""For the gateway's last answers, once every engine has ended."""
FIRST_LOOK_SECONDS = 10.0
"""For the operator's first look at each resource."""
GATEWAY_PROBES = Probes(
    startup=Probe(paths.READY, failure_threshold=60),
    readiness=Probe(paths.READY),
    liveness=Probe(paths.HEALTH, period_seconds=5, timeout_seconds=5),
)


class SessionError(Exception):
    """The session cannot begin; the text says why."""


class LocalSession:
    """Start it, put resources into it, close it."""

    def __init__(self, port: ReservedPort, logs: Path, origins: str = "") -> None:
        """Open the session's folder and ports.

        ``port``: the one that clients use, which is closed last; ``origins``: of web pages that may call the gateway,
        separated by commas. Raises ``OSError`` for a state folder that is not this user's.
        """
        self.logs = logs
        self._origins = origins
        self._port = port
        self.endpoint = self._port.url
        self._key = token_hex(32)
        """Key of the operator's HTTP; only the owner of the session's files can read it."""
        self._folder = session_folder()
        self.cluster = LocalCluster(lambda key: self.operator.enqueue_key(key), logs, self._folder.path)
        self._settings = Settings(gateway_url=self.endpoint)
        self.operator = Operator(self.cluster, self._settings)
        self._gateway_key = self._folder.path / "gateway" / "key"
        self._wanted: dict[Key, LLMDeployment] = {}
        self._removals: set[asyncio.Task[None]] = set()
        self._gateway: Program | None = None

    async def start(self, resources: Sequence[LLMDeployment]) -> None:
        """Operator, its HTTP and the gateway with ``resources``; returns when the endpoint answers for all of them.

        Raises :class:`SessionError`.
        """
        self._http, port = await serve_app(build_app(self.operator, self.cluster, self._key), HOST, 0)
        self.server = f"http://{HOST}:{port}"
        self.operator.start()
        self.set_resources(resources)
        await self._wait_for_routes({name for resource in resources for name in resource.served_names})
        roots = await self.operator.keys.read_roots()
        write_privately(self._gateway_key, "\n".join(roots.gateway))
        self._gateway = Program(
            "gateway", self._launch_gateway, GATEWAY_PROBES, self.logs / "gateway.log", _ignore_change
        )
        if not await self._gateway.first_run():
            reason = self._gateway.last_end
            await self.close()
            raise SessionError(f"the gateway does not start: {reason}; see {self._gateway.log_file}")
        reached = {"server": self.server, "endpoint": self.endpoint, "pid": os.getpid()}
        document = reached | {"folder": str(self._folder.path), "key": self._key}
        for path in (self._folder.path / SESSION_FILE, state_file()):
            private_folder(path.parent)
            write_privately(path, json.dumps(document) + "\n")

    def set_resources(self, resources: Sequence[LLMDeployment]) -> list[str]:
        """Make these the resources there are; returns a line for each that changed."""
        wanted = {Key(r.metadata.namespace, r.metadata.name): r for r in resources}
        lines = []
        for key in self._wanted.keys() - wanted.keys():
            lines.append(f"{key.name}: removed; its replicas finish their requests")
            removal = supervise_task(partial(self.cluster.remove, key), "remove-deployment", again=False)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)
        for key, resource in wanted.items():
            if self._wanted.get(key) != resource:
                lines.append(f"{key.name}: {'changed' if key in self._wanted else 'created'}")
                lines += list_unused([resource])
                self.cluster.put(without_unused(resource))
        self._wanted = wanted
        return lines

    async def close(self) -> None:
        """Admit nothing new, drain every engine, end."""
        if self._gateway is not None:
            self._gateway.terminate()
        self._port.stop_listening()
        await self.operator.stop()
        unrouting = supervise_task(self._end_routing, "end-routing", again=False)
        await self.cluster.close()
        unrouting.cancel()
        if self._gateway is not None:
            await self._gateway.stop(GATEWAY_GRACE_SECONDS)
        await self._http.close()
        self._port.close()
        self._folder.close()
        self._remove_state()

    def kill(self) -> None:
        """End everything now; :meth:`close` still has to be awaited."""
        self.cluster.kill()
        if self._gateway is not None:
            self._gateway.kill()

    async def _end_routing(self) -> None:
        """Wait until the gateway has answered all requests and is gone: engines wait for none any more."""
        if self._gateway is not None:
            await self._gateway.wait_end()
        self.cluster.end_routing()

    async def _wait_for_routes(self, models: set[str]) -> None:
        """Until the routing table names them: a gateway that starts now holds requests for them, and refuses none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while models - (await self.operator.routing_table()).first_names.keys():  # noqa: ASYNC110 - as asked for
                    await asyncio.sleep(0.02)

    def _launch_gateway(self) -> Launch:
        command = [
            find_program("paternoster"), "gateway", "--host", HOST, "--port", str(self._port.number),
            "--fd", str(self._port.fileno()),
            "--routes", self.server + paths.ROUTES, "--engine-key", str(self._gateway_key),
            f"--allowed-origins={self._origins}",
        ]  # fmt: skip
        env = {"TMPDIR": str(self._folder.path)}
        # If this process is killed, the ports of operator and engines are free, and a gateway would go on asking them.
        return Launch(command, env, self.endpoint, [self._port], signal.SIGKILL)

    def _remove_state(self) -> None:
        """Take the state file away, unless another session has written its own since."""
        try:
            written = json.loads(state_file().read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        if written["pid"] == os.getpid():
            state_file().unlink()


def _ignore_change() -> None:
    """The gateway's changes are no change of the cluster."""
