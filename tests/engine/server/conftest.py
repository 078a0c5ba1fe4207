"""Servers under test: in this process with a model that says what the test wrote down, and as a real process."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.server import recorded_answers
from tests.engine.server.official_types import faults, official_types
from tests.engine.server.reused_processes import Idle, idle_processes, reusing
from tests.engine.server.scripted_server import Serve, scripted_server

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_kernels.cpu.library import load_library

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
RECORDER = Path(recorded_answers.__file__)
POOL = ("--kv-cache-memory", "160000000")
"""3,400 tokens in float32; filling the default pool of 512 MiB with zeros takes a second."""

EXACT = () if load_library() else ("--dtype", "float32")
"""Numbers of a row that do not depend on the rows beside it: torch's products in bfloat16 have others in a batch."""


@pytest.fixture(scope="session")
def exact() -> Sequence[str]:
    """Flags of an engine that says the same in any company, and is as quick as that can be."""
    return EXACT


@pytest.fixture(scope="session")
def idle() -> Iterator[Idle]:
    with idle_processes() as idle:
        yield idle


@pytest.fixture(autouse=True)
def processes_are_reused(idle: Idle) -> Iterator[None]:
    with reusing(idle):
        yield


@pytest.fixture(autouse=True)
def answers_are_of_official_types() -> Iterator[None]:
    with official_types():
        yield


@pytest.fixture
def serve(tokenizer: Tokenizer) -> Serve:
    """``async with serve("what the model says") as server``; keyword arguments are fields of the scheduler's config."""
    return scripted_server(tokenizer)


@dataclass
class EngineUnderTest:
    """A ``paternoster serve`` process."""

    process: subprocess.Popen[str]
    url: str
    admin_url: str


@contextmanager
def _running(*flags: str, **environment: str) -> Iterator[EngineUnderTest]:
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "answers")
        command = [sys.executable, RECORDER, str(answers), "serve", "--port", "0", "--admin-port", "0"]
        with _process([*command, "--threads", "1", *POOL, *flags], environment) as engine:
            yield engine
        assert not (found := faults(recorded_answers.read(answers))), "\n".join(found)


@contextmanager
def _process(command: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator[EngineUnderTest]:
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://"), f"exit code {process.wait()}"
        admin_line = process.stdout.readline()
        assert admin_line.startswith("admin API on http://")
        yield EngineUnderTest(process, line.split()[-1], admin_line.split()[-1])
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def run_engine() -> Callable[..., AbstractContextManager[EngineUnderTest]]:
    """``with run_engine("--flag", "value", SOME_ENV="value") as engine``: ready when it is entered."""
    return _running


@pytest.fixture(scope="session")
def until_stats() -> Callable[[str, Callable[[dict[str, Any]], bool]], Awaitable[dict[str, Any]]]:
    """``await until_stats(url, condition)``: the first ``/stats`` of which ``condition`` holds."""

    async def wait(url: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=url) as http:
            while not condition(stats := (await http.get("/stats")).json()):
                await asyncio.sleep(0.01)
        return stats

    return wait
