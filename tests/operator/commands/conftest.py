"""``paternoster`` as a process of its own, and called in this one."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paternoster_contract.cli.command import main
from paternoster_contract.labels import OBJECTS, PODS
from paternoster_operator.publish import serve_app

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))


class Up:
    """A running ``paternoster up --no-view`` of one manifest."""

    def __init__(self, manifest: Path, env: dict[str, str], *words: str) -> None:
        self.manifest = manifest
        self.folder = manifest.parent
        self.record = self.folder / "run.jsonl"
        self._output = self.folder / "up.log"
        command = [PATERNOSTER, "up", "-f", str(manifest), "--port", "0", "--no-view"]
        command += ["--log-dir", str(self.folder / "logs"), "--record", str(self.record), *words]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, condition: Callable[[], Any], seconds: float = 90) -> Any:
        """The first true value of ``condition``; fails with what was printed when none came in time."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.1)
        return value

    def until_printed(self, text: str, seconds: float = 90) -> None:
        self.until(lambda: text in self.output, seconds)

    @property
    def endpoint(self) -> str:
        found = self.until(lambda: re.search(r"^endpoint (\S+)/v1", self.output, re.MULTILINE))
        return str(found[1])

    def pids(self, command: str) -> list[int]:
        """Processes of this session that run ``paternoster COMMAND``."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if command.encode() in words and f"XDG_STATE_HOME={self.folder}\0".encode() in environment:
                found.append(int(entry.name))
        return found

    @property
    def engine_pids(self) -> list[int]:
        return self.pids("serve")

    def write(self, document: Any) -> None:
        """Edit the manifest; text is written as it is."""
        self.manifest.write_text(document if isinstance(document, str) else yaml.safe_dump(document))

    def interrupt(self, seconds: float = 60) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(seconds)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """State of this test alone."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return variables | {"XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def paternoster(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one command to its end."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PATERNOSTER, *words], capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    return run


@pytest.fixture
def call_paternoster(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call one command in this process, as a process of its own imports for longer than the command takes."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        assert "KUBECONFIG" not in environment, "the Kubernetes client reads it once, when it is imported"
        out, err = io.StringIO(), io.StringIO()
        mask = os.umask(0o077)
        try:
            with patch.dict(os.environ, environment, clear=True), redirect_stdout(out), redirect_stderr(err):
                status = main(words)
        finally:
            os.umask(mask)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def write_kubeconfig(tmp_path: Path, environment: dict[str, str]) -> Callable[[str], None]:
    """Write a kubeconfig with one context ``home``, of namespace ``lifts``, and make the commands read it."""

    def write(server: str) -> None:
        path = tmp_path / "kubeconfig"
        context = {"cluster": "house", "user": "rider", "namespace": "lifts"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "home",
            "contexts": [{"name": "home", "context": context}],
            "clusters": [{"name": "house", "cluster": {"server": server}}],
            "users": [{"name": "rider", "user": {"token": "none"}}],
        }
        path.write_text(yaml.safe_dump(document))
        environment["KUBECONFIG"] = str(path)

    return write


@pytest.fixture
def up(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[[Any], Up]]:
    """Start ``paternoster up`` with a manifest; it is ended with the test."""
    started: list[Up] = []

    def start(document: Any, *words: str) -> Up:
        manifest = tmp_path / "fleet.yaml"
        manifest.write_text(yaml.safe_dump(document))
        started.append(Up(manifest, environment, *words))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@asynccontextmanager
async def _serve_objects(*objects: dict[str, Any], pods: Sequence[dict[str, Any]] | None = ()) -> AsyncIterator[str]:
    """``pods`` are all of one fleet; None where the caller may not read them."""

    def place(one: dict[str, Any]) -> tuple[str, str]:
        return one["metadata"].get("namespace", ""), one["metadata"]["name"]

    async def list_all(_: Request) -> Response:
        return JSONResponse({"items": objects})

    async def list_some(request: Request) -> Response:
        namespace = request.path_params["namespace"]
        return JSONResponse({"items": [one for one in objects if place(one)[0] == namespace]})

    async def get_one(request: Request) -> Response:
        wanted = request.path_params["namespace"], request.path_params["name"]
        found = next((one for one in objects if place(one) == wanted), None)
        return JSONResponse(found or {"kind": "Status", "message": "not found"}, 200 if found else 404)

    async def list_pods(_: Request) -> Response:
        return JSONResponse({"items": pods}) if pods is not None else JSONResponse({"kind": "Status"}, 403)

    group, plural = OBJECTS.rsplit("/", 1)
    namespaced = f"{group}/namespaces/{{namespace}}/{plural}"
    routes = [Route(OBJECTS, list_all), Route(namespaced, list_some), Route(namespaced + "/{name}", get_one)]
    routes += [Route(PODS, list_pods), Route("/api/v1/namespaces/{namespace}/pods", list_pods)]
    server, port = await serve_app(Starlette(routes=routes), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.close()


@pytest.fixture
def serve_objects() -> Callable[..., AbstractAsyncContextManager[str]]:
    """``async with serve_objects(OBJECT, ...) as url``: an operator that has them, and an API server that has them."""
    return _serve_objects
