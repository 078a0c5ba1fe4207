"""Gateways read of a real vLLM's cache what it then finds there: ``make vllm`` sets it up."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.operator.vllm_plugin.text_chains.gateway_index import CHAT, MODEL, GatewayIndex

from harness.servers import PATERNOSTER, Server, free_port, started
from paternoster_contract.http import headers, paths
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.text_chains.stream import FrameReader
from paternoster_operator.engines.vllm_arguments import GATEWAY_ENV, VllmKind
from paternoster_operator.engines.vllm_plugin import write_plugin
from peers.systems.server import RunningServer, server
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu
from peers.systems.weights import checkpoint

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(900)]
BLOCK_SIZE = 32
"""The smallest of vLLM on processors."""
PIECES_METRIC = "paternoster_gateway_indexed_pieces"
NEXT_TURN = [{"role": "assistant", "content": "Step."}, {"role": "user", "content": "And then?"}]
WORDS = ["lift", "stops", "riders", "step", "floor", "cars", "past", "open", "doors", "an", "old", "house"]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Whose cache has room for some of the chats alone."""
    with started_vllm(tmp_path_factory.mktemp("vllm")) as running:
        yield running


@contextmanager
def started_vllm(folder: Path) -> Iterator[RunningServer]:
    if os.environ.get("REQUIRE_COMPONENTS"):
        VllmCpu().set_up()
    elif not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    port = free_port()
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


async def test_a_gateway_that_was_killed_and_one_that_goes_on_send_chats_where_they_are_cached(
    vllm: RunningServer, tmp_path: Path
) -> None:
    chats = [
        [{"role": "user", "content": f"Chat {i}. " + " ".join(random.Random(i).choices(WORDS, k=150))}]
        for i in range(8)
    ]
    with started_vllm(tmp_path) as second:
        gateways = make_gateways([vllm.url, second.url], tmp_path)
        async with httpx.AsyncClient(timeout=300) as client:

            async def send(gateway: Server, messages: list[dict[str, Any]]) -> tuple[str, int, int]:
                """The replica, the tokens that were promised there, and those that its cache had."""
                body = {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}
                answer = await client.post(gateway.url + CHAT, json=body, headers={headers.DEBUG: "1"})
                assert answer.status_code == 200, answer.text
                debug = dict(each.split("=") for each in answer.headers["X-Paternoster-Routing"].split(", "))
                usage = answer.json()["usage"]["prompt_tokens_details"] or {}
                return debug["replica"], int(debug["promised"]), usage.get("cached_tokens", 0)

            async def count_pieces(gateway: Server) -> int:
                lines = (await client.get(gateway.url + paths.METRICS)).text.splitlines()
                return int(float(next(line.split()[1] for line in lines if line.startswith(PIECES_METRIC + " "))))

            with started(gateways):
                going_on, killed = gateways
                places = [(await send(going_on, messages))[0] for messages in chats]
                assert set(places) == {"0", "1"}
                killed.end()
                killed.start()
                await asyncio.to_thread(killed.wait_ready)
                async with asyncio.timeout(120):
                    while await count_pieces(going_on) == 0 or await count_pieces(killed) != await count_pieces(
                        going_on
                    ):
                        await asyncio.sleep(0.2)
                later = [[*messages, *NEXT_TURN] for messages in chats]
                found = [[await send(gateway, messages) for gateway in (killed, going_on)] for messages in later]
    print(found)
    assert [[replica for replica, *_ in both] for both in found] == [[place, place] for place in places]
    assert all(0 < promised <= delivered + BLOCK_SIZE for both in found for _, promised, delivered in both)


def make_gateways(engines: list[str], folder: Path) -> list[Server]:
    """Two gateways before ``engines``."""
    replicas = [Replica(name=str(number), url=url, ready=True) for number, url in enumerate(engines)]
    routes = folder / "routes.json"
    routes.write_text(RoutingTable(models={MODEL: ModelRoute(replicas=replicas)}).model_dump_json())
    gateways = []
    for name in ("going-on", "killed"):
        port = free_port()
        command = [PATERNOSTER, "gateway", "--routes", str(routes), "--port", str(port)]
        gateways.append(Server(name, command, port, folder / f"{name}.log"))
    return gateways
