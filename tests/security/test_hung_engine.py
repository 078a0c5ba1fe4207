"""SIGSTOP of one of two engines: no request waits for it, and with SIGCONT it comes back."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.security.behind_gateway import Process, fake_engine, gateway

LIMIT_SECONDS = 45
"""Far above the seconds after which a stopped process is left, and below the minutes for which callers once waited."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """A gateway and the first of two engines."""
    with (
        fake_engine("first") as first,
        fake_engine("second") as second,
        gateway(tmp_path, [first.url, second.url]) as front,
    ):
        yield front, first


async def send_chat(client: aiohttp.ClientSession, url: str) -> str:
    """Who answered."""
    async with client.post(f"{url}/v1/completions", json={"model": "m", "prompt": "x"}) as response:
        assert response.status == 200
        return str((await response.json())["from"])


async def stream(client: aiohttp.ClientSession, url: str, begun: asyncio.Event) -> str:
    body = {"model": "m", "prompt": "x", "stream": True}
    text = b""
    async with client.post(f"{url}/v1/completions", json=body) as response:
        assert response.status == 200
        async for chunk in response.content.iter_any():
            text += chunk
            begun.set()
    return text.decode()


async def test_a_stopped_engine_is_left_within_seconds(fleet: tuple[Process, Process]) -> None:
    front, first = fleet
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_SECONDS)) as client:
        assert {await send_chat(client, front.url) for _ in range(4)} == {"first", "second"}
        first.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        answers = await asyncio.gather(*(send_chat(client, front.url) for _ in range(20)))
        print(f"all answered after {time.monotonic() - started:.1f} s")
        assert Counter(answers) == {"second": 20}
        started = time.monotonic()
        assert [await send_chat(client, front.url) for _ in range(4)] == ["second"] * 4
        print(f"four more after {time.monotonic() - started:.1f} s")

        first.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(LIMIT_SECONDS):
            while await send_chat(client, front.url) != "first":
                pass


async def test_streams_that_a_stopped_engine_began_end_with_an_error(fleet: tuple[Process, Process]) -> None:
    front, first = fleet
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_SECONDS)) as client:
        begun = [asyncio.Event() for _ in range(6)]
        streams = [asyncio.create_task(stream(client, front.url, event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        first.process.send_signal(signal.SIGSTOP)
        texts = await asyncio.gather(*streams)
        async with client.get(f"{front.url}/stats") as response:
            assert (await response.json())["models"]["m"]["in_flight"] == 0
    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    broken = [text for text in texts if '"first"' in text]
    assert broken
    for text in broken:
        *_, error, _, _ = text.split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["type"] == "BadGatewayError"
    assert all("error" not in text for text in texts if text not in broken)
