"""The gateway before two vLLMs with the plugin: one breaks off or drains, and the client sees one stream."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.gateway.fakes import serving, until
from tests.operator.vllm_plugin.continuation.stub_vllm import CHAT, COMPLETIONS, PROMPT, RESPONSES, StubVllm

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.app import create_app
from paternoster_vllm.continuation import StreamContinuation

ANSWER = "Ünïcödé and 漢字 🙂".encode()
BODIES: dict[str, Any] = {
    CHAT: {
        "model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True,
        "stream_options": {"include_usage": True},
    },
    COMPLETIONS: {
        "model": "m", "prompt": PROMPT.decode(), "stream": True, "max_tokens": 20, "stop": ["漢"], "n": 2,
        "logprobs": 1,
    },
    RESPONSES: {"model": "m", "prompt": PROMPT.decode(), "stream": True},
}  # fmt: skip
KILLED, FAILED = b"", b'data: {"error":{"message":"EngineCore encountered an issue","code":500}}'


class Fleet:
    """Two replicas of model m, and the gateway before them."""

    def __init__(self, url: str, table: Path, vllms: dict[str, StubVllm]) -> None:
        self.url = url
        self.table = table
        self.vllms = vllms

    def publish(self, *draining: str) -> None:
        """Publish replicas, of which ``draining`` are to end."""
        replicas = [
            Replica(name=name, url=url, ready=True, draining=url in draining)
            for name, url in zip("ab", self.vllms, strict=True)
        ]
        route = ModelRoute(replicas=replicas, hand_over=True)
        self.table.write_text(RoutingTable(models={"m": route}).model_dump_json())

    async def stream(self, session: aiohttp.ClientSession, path: str) -> bytes:
        async with session.post(self.url + path, json=BODIES[path]) as response:
            assert response.status == 200
            return await response.read()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    table, vllms = tmp_path / "routes.json", {}
    async with AsyncExitStack() as stack:
        for _ in range(2):
            vllm = StubVllm(ANSWER)
            vllms[await stack.enter_async_context(serving(_with_plugin(vllm)))] = vllm
        table.write_text(RoutingTable().model_dump_json())
        url = await stack.enter_async_context(serving(create_app(str(table))))
        made = Fleet(url, table, vllms)
        made.publish()
        yield made


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


def _with_plugin(vllm: StubVllm) -> Any:
    layer = StreamContinuation(vllm, lambda _: vllm.facts())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await layer({**scope, "app": SimpleNamespace(state=None)}, receive, send)

    return app


async def count(session: aiohttp.ClientSession, fleet: Fleet, name: str) -> float:
    async with session.get(f"{fleet.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(each.split()[-1]) for each in lines if each.startswith(f"paternoster_gateway_{name}_total{{"))


async def await_models(session: aiohttp.ClientSession, fleet: Fleet) -> None:
    async def read_models() -> Any:
        async with session.get(f"{fleet.url}/v1/models") as response:
            return (await response.json()).get("data")  # an error before the table was read

    await until(read_models, bool)


def read_answer(stream: bytes) -> tuple[dict[int, dict[str, Any]], bytes]:
    """Split a stream into its choices and all other frames, without the gateway's id and time of the stream.

    Neither the order of choices in a step nor the number of steps in a frame is promised.
    """
    stream = re.sub(rb'"created":[0-9]+', b'"created":0', re.sub(rb"[0-9a-f]{32}", b"id", stream))
    choices: dict[int, dict[str, Any]] = {}
    others = []
    for frame in stream.split(b"\n\n"):
        document = json.loads(frame[6:]) if frame.startswith(b'data: {"id"') else {}
        for part in document.get("choices", []):
            choice = choices.setdefault(part["index"], {"text": "", "logprobs": [], "ends": []})
            choice["text"] += part["delta"]["content"] if "delta" in part else part["text"]
            choice["logprobs"] += part.get("logprobs") or []
            choice["ends"] += [(part["finish_reason"], part["stop_reason"])] if part.get("finish_reason") else []
        if not document.get("choices"):
            others.append(frame)
    return choices, b"\n\n".join(others)


async def read_undisturbed(path: str) -> tuple[dict[int, dict[str, Any]], bytes]:
    vllm = StubVllm(ANSWER)
    vllm.pause = 0.005
    frames = [frame async for frame in vllm.write_frames(BODIES[path], path)]
    return read_answer(b"".join(frame + b"\n\n" for frame in frames))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
@pytest.mark.parametrize("frame", [KILLED, FAILED])
@pytest.mark.parametrize("after", [1, 4, 9])
async def test_a_stream_of_a_killed_vllm_goes_on(
    fleet: Fleet, session: aiohttp.ClientSession, path: str, frame: bytes, after: int
) -> None:
    expected = await read_undisturbed(path)
    await await_models(session, fleet)
    breaks_at = [after, after + 2]
    for vllm in fleet.vllms.values():
        vllm.breaks_at, vllm.break_frame = breaks_at, frame
        vllm.pause = 0.005  # no output waits for another one
    answer = await fleet.stream(session, path)
    assert read_answer(answer) == expected
    assert len(set(re.findall(rb"cmpl-[0-9a-f]{32}", answer))) == 1
    assert breaks_at == []
    assert await count(session, fleet, "continued_streams") == 2
    assert await count(session, fleet, "broken_streams") == 0


async def test_streams_of_a_draining_vllm_are_handed_over(fleet: Fleet, session: aiohttp.ClientSession) -> None:
    """Without a word of vLLM's: the gateway has the journal, and closes the connection once another one goes on."""
    expected = await read_undisturbed(CHAT)
    await await_models(session, fleet)
    for vllm in fleet.vllms.values():
        vllm.pause = 0.1
    streams = [asyncio.create_task(fleet.stream(session, CHAT)) for _ in range(4)]
    while min(vllm.sent for vllm in fleet.vllms.values()) < 4:
        await asyncio.sleep(0.02)
    draining, (other_url, other) = next(iter(fleet.vllms)), list(fleet.vllms.items())[1]
    moved = len(fleet.vllms[draining].bodies)
    fleet.publish(draining)
    assert list(map(read_answer, await asyncio.gather(*streams))) == [expected] * 4
    assert other_url != draining
    assert fleet.vllms[draining].aborted == moved
    assert len(other.bodies) == 4
    assert await count(session, fleet, "continued_streams") == moved


async def test_a_call_that_is_not_continued_ends_with_an_error_that_says_why(
    fleet: Fleet, session: aiohttp.ClientSession
) -> None:
    await await_models(session, fleet)
    for vllm in fleet.vllms.values():
        vllm.breaks_at = [3]
    async with session.post(fleet.url + CHAT, json=BODIES[CHAT] | {"presence_penalty": 0.5}) as response:
        answer = (await response.read()).replace(b'":"', b'": "')
    assert b'"type": "BadGatewayError"' in answer
    assert b"broke off its answer, and none continues presence_penalty." in answer
    assert await count(session, fleet, "broken_streams") == 1
    assert min(len(vllm.bodies) for vllm in fleet.vllms.values()) == 0, "vLLM does not get it again"
