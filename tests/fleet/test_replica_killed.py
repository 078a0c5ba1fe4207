"""Two replicas, thirty-two requests, one SIGKILL: no request waits for ever or is left without an answer."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from tests.fleet.fleet import Up, wait_for

from paternoster_traces.prompts import PromptSource, default_text
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceRow, read_trace

pytestmark = pytest.mark.slow

REQUESTS = 32
TRACES = Path(os.environ.get("PATERNOSTER_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
PROMPT, OUTPUT = 96, 16
"""Longest prompt and output, tokens: the trace's shape at the speed of two cores."""


def rows() -> list[TraceRow]:
    """The beginning of the Azure conversation trace where it is at hand, else the generator fitted to it."""
    file = TRACES / "azure_llm_2023_conv.csv"
    return read_trace(str(file))[:REQUESTS] if file.exists() else generate_rows(REQUESTS)


async def send_all(endpoint: str, kill: Callable[[], None]) -> list[tuple[int, dict[str, object]]]:
    """All requests, at most 16 in flight; ``kill`` is called once a quarter have been answered."""
    answers: list[tuple[int, dict[str, object]]] = []
    slots = asyncio.Semaphore(16)
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.post(
            f"{endpoint}/tokenize", json={"model": "smollm2", "prompt": default_text()}
        ) as response:
            prompts = PromptSource((await response.json())["tokens"])

        async def send(index: int, row: TraceRow) -> None:
            body = {
                "model": "smollm2",
                "prompt": prompts.make_prompt(index, min(row.prompt_tokens, PROMPT)),
                "max_tokens": min(row.output_tokens, OUTPUT),
                "temperature": 0,
                "ignore_eos": True,
            }
            async with slots, session.post(f"{endpoint}/v1/completions", json=body) as response:
                answers.append((response.status, await response.json()))
            if len(answers) == REQUESTS // 4:
                kill()

        await asyncio.gather(*(send(index, row) for index, row in enumerate(rows())))
    return answers


def test_a_killed_replica_costs_nobody_an_answer(up: Callable[..., Up]) -> None:
    fleet = up(replicas=2, engine={"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "96Mi"})
    endpoint = fleet.ready(2)
    victims: list[int] = []

    def kill() -> None:
        victims.append(fleet.engine_pids()[0])
        os.kill(victims[0], signal.SIGKILL)

    answers = asyncio.run(send_all(endpoint, kill))
    assert victims
    assert len(answers) == REQUESTS
    assert Counter(status for status, _ in answers) == {200: REQUESTS}, "a request without a first byte is repeated"
    assert all(answer["usage"]["completion_tokens"] >= 1 for _, answer in answers)  # type: ignore[index]

    fleet.ready(2)
    wait_for(lambda: len(fleet.replicas()) == 2, "the killed replica in the routing table")
    for stats in fleet.engine_stats():
        assert (stats["running"], stats["waiting"], stats["kv_blocks_used"]) == (0, 0, 0)
    assert fleet.interrupt() == 0
