"""Conversations at two real replicas: each stays where it is cached, and a gateway that starts indexes all caches."""

import asyncio
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import aiohttp
import pytest
from tests.fleet.fleet import PATERNOSTER, Up, children, command_line, wait_for

from paternoster_contract.http.headers import CACHED_TOKENS, DEBUG, PROMPT_TOKENS, ROUTING

pytestmark = pytest.mark.slow

CHATS, TURNS, BLOCK = 4, 3, 16


async def hold_chats(endpoint: str) -> None:
    """Turns of several chats in turn, of which each must find what the one before has left."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=240)) as session:
        chats = [[{"role": "system", "content": f"You are lift {number}. " * 20}] for number in range(CHATS)]
        replicas, lengths = [""] * CHATS, [0] * CHATS
        for _ in range(TURNS):
            for number, messages in enumerate(chats):
                messages.append({"role": "user", "content": "Which floor comes next, and who steps on there?"})
                body = {"model": "smollm2", "messages": messages, "max_tokens": 24, "temperature": 0}
                url = f"{endpoint}/v1/chat/completions"
                async with session.post(url, json=body, headers={DEBUG: "1"}) as response:
                    answer = await response.json()
                    assert response.status == 200, answer
                    assert "by=prefix" in response.headers[ROUTING]
                    replica = response.headers[ROUTING].split(",")[0]
                    cached, prompt = int(response.headers[CACHED_TOKENS]), int(response.headers[PROMPT_TOKENS])
                if replicas[number]:
                    assert replica == replicas[number]
                    assert cached >= lengths[number] - 2 * BLOCK
                replicas[number], lengths[number] = replica, prompt
                messages.append(answer["choices"][0]["message"])


def numbers(url: str, name: str) -> float:
    with urlopen(f"{url}/metrics") as response:
        text = response.read().decode()
    return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M)))


@contextmanager
def another_gateway(fleet: Up) -> Iterator[str]:
    """Beside the one of the fleet, as it is after a restart."""
    (line,) = (line for pid in children(fleet.process.pid) if "gateway" in (line := command_line(pid)))
    flags = [part for name in ("--routes", "--engine-key") for part in (name, line[line.index(name) + 1])]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gateway = subprocess.Popen([PATERNOSTER, "gateway", *flags, "--port", str(port)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        gateway.kill()
        gateway.wait()


def test_chats_stay_where_they_are_cached(up: Callable[..., Up]) -> None:
    fleet = up(replicas=2, engine={"maxNumSeqs": 8, "maxModelLen": 1024, "kvCacheMemory": "96Mi"})
    endpoint = fleet.ready(2)
    indexed = "paternoster_gateway_replicas_indexed"
    wait_for(lambda: numbers(endpoint, indexed) == 2, "two replicas indexed")
    asyncio.run(hold_chats(endpoint))
    admins = [(line := command_line(pid))[line.index("--admin-port") + 1] for pid in fleet.engine_pids()]

    def held() -> float:
        return sum(numbers(f"http://127.0.0.1:{port}", "paternoster_engine_text_pieces") for port in admins)

    pieces = "paternoster_gateway_indexed_pieces"
    wait_for(lambda: numbers(endpoint, pieces) == held() > 0, "what engines hold is indexed")
    with another_gateway(fleet) as other:

        def is_indexed() -> bool:
            try:
                return numbers(other, pieces) == held()
            except OSError:
                return False

        wait_for(is_indexed, "a gateway that starts has the same index")
