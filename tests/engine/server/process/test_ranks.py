"""``paternoster serve`` on three ranks: one answer, one end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

RANKS = ("--tensor-parallel-size", "3", "--dtype", "float32", "--kv-cache-memory", "100000000", "--max-num-seqs", "4")
CHAT = {"messages": [{"role": "user", "content": "What is the capital of Japan?"}], "temperature": 0, "max_tokens": 20}
ENDLESS = {"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": True}
PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
ENDS_WITHIN = 20.0
"""Seconds."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _children(pid: int) -> list[int]:
    """Its processes, started from whatever thread."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())


def _workers(pid: int) -> list[int]:
    """Processes of the other ranks; another one renders chat templates."""
    return [child for child in _children(pid) if b"parallel.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    # A zombie has ended; the process that adopted it has not read its status yet.
    return status.rpartition(")")[2].split()[0] != "Z"


async def _until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + ENDS_WITHIN
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if _runs(pid)]}"
        await asyncio.sleep(0.05)


@pytest.fixture
def starting() -> Iterator[subprocess.Popen[bytes]]:
    command = [PATERNOSTER, "serve", "--port", "0", "--threads", "1", *RANKS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_ranks_that_still_load_end_with_rank_0(starting: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """They import for seconds, and then wait for what to load."""
    while len(workers := _workers(starting.pid)) < 2:
        assert starting.poll() is None
        await asyncio.sleep(0.01)
    starting.send_signal(number)
    await asyncio.to_thread(starting.wait, ENDS_WITHIN)
    await _until_ended(workers)


@pytest.fixture
def engine(run_engine: Any) -> Iterator[Any]:
    with run_engine(*RANKS) as engine:
        yield engine


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_chat_is_answered_and_no_process_is_left(engine: Any, number: signal.Signals) -> None:
    children = _children(engine.process.pid)
    assert len(_workers(engine.process.pid)) == 2
    async with httpx.AsyncClient(base_url=engine.url, timeout=120) as http:
        answer = (await http.post("/v1/chat/completions", json=CHAT)).json()
    assert answer["choices"][0]["message"]["content"] == "The capital of Japan is Tokyo."
    engine.process.send_signal(number)
    status = await asyncio.to_thread(engine.process.wait, ENDS_WITHIN)
    assert status == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    await _until_ended(children)


async def test_a_worker_that_dies_ends_requests_with_an_error_and_the_process(engine: Any, until_stats: Any) -> None:
    workers = _workers(engine.process.pid)
    async with httpx.AsyncClient(base_url=engine.url, timeout=120) as http:
        endless = asyncio.create_task(http.post("/v1/completions", json=ENDLESS))
        await until_stats(engine.url, lambda stats: stats["running"] == 1)
        os.kill(workers[0], signal.SIGKILL)
        answer = await endless
    assert answer.status_code == 500
    assert "error" in answer.json()
    assert await asyncio.to_thread(engine.process.wait, ENDS_WITHIN) == 1
    await _until_ended(workers)


async def test_a_worker_that_dies_ends_an_idle_process_too(engine: Any) -> None:
    workers = _workers(engine.process.pid)
    os.kill(workers[1], signal.SIGKILL)
    assert await asyncio.to_thread(engine.process.wait, ENDS_WITHIN) == 1
    await _until_ended(workers)
