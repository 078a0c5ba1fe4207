"""Hostile clients of a gateway, in a process of their own: theirs is another machine than that of whoever measures.

    python benchmarks hostile.attacks http://127.0.0.1:8080 --attackers 4 --kinds "slow readers"

It attacks until its standard input ends, then tells how many answers of each status it got, in JSON.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp

from hostile.fleet import CONTEXT, MODEL
from paternoster_engine.bench.requests.prompts import default_text

KEY_VARIABLE = "HOSTILE_KEY"
"""In the environment, as arguments are seen by everybody."""


class Attacks:
    """Each kind of attack, once."""

    def __init__(self, url: str, session: aiohttp.ClientSession, max_model_len: int = CONTEXT) -> None:
        self._url = url
        self._max_model_len = max_model_len
        self._session = session
        self._text = default_text()
        self._host, self._port = url.removeprefix("http://").split(":")
        self.answers: Counter[str] = Counter()
        """By kind and status."""
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "long prompts": self._long_prompt,
            "slow readers": self._slow_reader,
            "header floods": self._header_flood,
            "one tenant's flood": self._flood,
            "prompts that fit": self._fitting_prompt,
            "many choices": self._many_choices,
        }

    async def again(self, kind: str) -> None:
        """That attack, over and over."""
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self.kinds[kind]()
            await asyncio.sleep(0.01)

    async def _long_prompt(self) -> None:
        # 8 MB, which are refused; then as much as there is room for.
        for prompt in (self._text * 80, self._text[: 2 * CONTEXT]):
            await self._read("long prompts", {"prompt": prompt, "max_tokens": 8})

    async def _slow_reader(self) -> None:
        async with self._post({"prompt": "up", "max_tokens": CONTEXT // 2, "stream": True}) as response:
            self.answers[f"slow readers {response.status}"] += 1
            while await response.content.read(64):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def _header_flood(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
            for _ in range(50):
                writer.write(b"X-Flood: " + b"a" * 65_536 + b"\r\n")
                await writer.drain()
            await reader.read(100)
        finally:
            writer.close()

    async def _flood(self) -> None:
        if await self._read("one tenant's flood", {"prompt": "up", "max_tokens": 32}) != 200:
            await asyncio.sleep(0.05)

    async def _fitting_prompt(self) -> None:
        # About half of the context, by four characters a token, that no cache has.
        size = 2 * self._max_model_len
        start = secrets.randbelow(max(1, len(self._text) - size))
        prompt = secrets.token_hex(4) + self._text[start : start + size]
        await self._read("prompts that fit", {"prompt": prompt, "max_tokens": 8})

    async def _many_choices(self) -> None:
        await self._read("many choices", {"prompt": secrets.token_hex(4), "n": 64, "max_tokens": 128, "temperature": 1})

    async def _read(self, kind: str, fields: dict[str, object]) -> int:
        async with self._post(fields) as response:
            self.answers[f"{kind} {response.status}"] += 1
            await response.read()
            return response.status

    def _post(self, fields: dict[str, object]) -> "aiohttp.client._RequestContextManager":
        body = {"model": MODEL, "temperature": 0, "ignore_eos": True, **fields}
        return self._session.post(f"{self._url}/v1/completions", json=body, headers=_key())


def _key() -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY_VARIABLE)) else {}


async def attack(url: str, kinds: list[str], attackers: int, max_model_len: int) -> Counter[str]:
    """So many of each of ``kinds``, until standard input ends; answers by kind and status."""
    timeout, connector = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        attacks = Attacks(url, session, max_model_len)
        tasks = [
            asyncio.create_task(attacks.again(kind)) for kind in (kinds or attacks.kinds) for _ in range(attackers)
        ]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return attacks.answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of the gateway")
    parser.add_argument("--attackers", type=int, default=4, help="of each kind (default: %(default)s)")
    parser.add_argument("--kinds", nargs="*", default=[], help="these alone (default: all)")
    parser.add_argument("--max-model-len", type=int, default=CONTEXT, help="of the engines (default: %(default)s)")
    args = parser.parse_args()
    os.nice(19)
    print(json.dumps(asyncio.run(attack(args.url, args.kinds, args.attackers, args.max_model_len))))
    return 0
