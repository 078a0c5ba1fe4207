"""A peer that is an OpenAI-compatible server in processes of its own."""

import asyncio
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paternoster_load.client import BenchClient, drive_load
from paternoster_load.results import BenchRequest, RequestResult
from peers.peer import OnResult, PeerError

READY_WITHIN = 420.0
STOP_WITHIN = 30.0


@dataclass
class RunningServer:
    """Talks to the server over HTTP."""

    session: int
    url: str
    model: str
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def serve(self, requests: Sequence[BenchRequest], concurrency: int, on_result: OnResult) -> list[RequestResult]:
        async def send() -> list[RequestResult]:
            sampling = {"temperature": 0.0, "ignore_eos": True, **self.sampling}
            async with BenchClient(self.url, self.model, sampling=sampling, keep_alive=False) as client:
                return await drive_load(client, requests, max_concurrency=concurrency, on_result=on_result)

        return asyncio.run(send())


@contextmanager
def process(command: Sequence[str | Path], log: Path, env: Mapping[str, str], **pipes: Any) -> Iterator[Any]:
    """A process in a session of its own, its output in ``log``; the whole session is ended after."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            [str(part) for part in command],
            stdout=pipes.pop("stdout", output),
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
            **pipes,
        )
    try:
        yield started
    finally:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(started.pid, kind)
                started.wait(STOP_WITHIN)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        started.wait()


@contextmanager
def server(
    command: Sequence[str | Path],
    port: int,
    log: Path,
    *,
    model: str,
    env: Mapping[str, str],
    health: str = "/health",
    sampling: Mapping[str, Any] | None = None,
) -> Iterator[RunningServer]:
    """Start it, wait until ``health`` answers 200, and end it after; raises :class:`PeerError`."""
    url = f"http://127.0.0.1:{port}"
    with process(command, log, env) as started:
        until = time.monotonic() + READY_WITHIN
        while not _healthy(url + health):
            if started.poll() is not None:
                raise PeerError(f"{command[0]}: ended with status {started.returncode} before it was ready: {log}")
            if time.monotonic() > until:
                raise PeerError(f"{command[0]}: not ready within {READY_WITHIN:g} s: {log}")
            time.sleep(0.5)
        yield RunningServer(started.pid, url, model, sampling or {})


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
