"""Gateways read of a real vLLM's cache what it then finds there: ``make vllm`` sets it up."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.operator.vllm_plugin.text_chains.gateway_index import CHAT, MODEL, GatewayIndex

from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.text_chains.stream import FrameReader
from paternoster_operator.engines.vllm_arguments import GATEWAY_ENV, VllmKind
from paternoster_operator.engines.vllm_plugin import write_plugin
from peers.systems.server import RunningServer, free_port, server
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu
from peers.systems.weights import checkpoint

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(900)]
BLOCK_SIZE = 32
"""The smallest of vLLM on processors."""
WORDS = ["lift", "stops", "riders", "step", "floor", "cars", "past", "open", "doors", "an", "old", "house"]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Whose cache has room for some of the chats alone."""
    if os.environ.get("REQUIRE_COMPONENTS"):
        VllmCpu().set_up()
    elif not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    folder, port = tmp_path_factory.mktemp("vllm"), free_port()
    write_plugin(folder / "plugin")
    settings = EngineArgs(
        model=f"file://{checkpoint()}", served_model_name=(MODEL,), port=port, max_num_seqs=8, max_model_len=2048,
        block_size=BLOCK_SIZE, kv_cache_memory=48 * 2**20, dtype="bfloat16",
    )  # fmt: skip
    launch = VllmKind().launch(settings, ["--enforce-eager", "--enable-prompt-tokens-details"])
    program = ENVIRONMENT.folder / "bin" / launch.command[0]
    env = {**launch.env, "PYTHONPATH": str(folder / "plugin"), "VLLM_CPU_OMP_THREADS_BIND": "nobind", GATEWAY_ENV: "1"}
    command = [str(program), *launch.command[1:], *launch.args]
    with server(command, port, folder / "log", model=MODEL, env={**env, "OMP_NUM_THREADS": "2"}) as running:
        yield running


@asynccontextmanager
async def following(url: str) -> AsyncIterator[GatewayIndex]:
    """The index of a gateway that joins."""
    index, frames = GatewayIndex(url), FrameReader()

    async def follow() -> None:
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", url + paths.TEXT_CHAINS, params=index.reader.start_connection()) as response,
        ):
            assert response.status_code == 200
            async for data in response.aiter_raw():
                index.apply(frames.feed(data))

    task = asyncio.create_task(follow())
    try:
        await wait_until(lambda: index.reader.is_whole)
        yield index
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_met():
            await asyncio.sleep(0.02)


def write_chats() -> list[list[dict[str, Any]]]:
    """Turns of chats whose instructions are one, in any order; the first ones do not fit beside the last."""
    chance = random.Random("chats")
    turns = []
    for _ in range(8):
        messages = [{"role": "system", "content": "You write about an old house. " * 12}]
        for _ in range(4):
            messages = [*messages, {"role": "user", "content": " ".join(chance.choices(WORDS, k=60))}]
            turns.append((len(messages) + chance.random(), messages))
            messages = [*messages, {"role": "assistant", "content": " ".join(chance.choices(WORDS, k=12))}]
    return [messages for _, messages in sorted(turns, key=lambda turn: turn[0])]


async def test_gateways_that_join_or_restart_find_what_vllm_then_delivers(vllm: RunningServer) -> None:
    prompt_tokens, promised, delivered = 0, [], []
    async with httpx.AsyncClient(timeout=300) as client, following(vllm.url) as first:
        for messages in write_chats():
            body = {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}
            async with following(vllm.url) as joining:
                await wait_until(lambda: joining.num_pieces == first.num_pieces)
                prefix = await first.find(body)
                assert await joining.find(body) == prefix
            answer = await client.post(vllm.url + CHAT, json=body)
            assert answer.status_code == 200, answer.text
            usage = answer.json()["usage"]
            prompt_tokens += usage["prompt_tokens"]
            promised.append(prefix.tokens)
            delivered.append((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0))
            await asyncio.sleep(1.0)
    print(f"of {prompt_tokens} prompt tokens {sum(promised)} were promised and {sum(delivered)} delivered")
    print(f"{first.num_removed} pieces were evicted")
    pairs = list(zip(promised, delivered, strict=True))
    # A piece that ends inside a token counts the whole one, which another text may end in another way.
    assert all(expected <= found + BLOCK_SIZE for expected, found in pairs), pairs
    assert 0 < 0.8 * sum(delivered) < sum(promised) <= sum(delivered)
    assert first.num_removed > 0
