"""What hostile clients do, one method a kind of request: each is done again as soon as it has ended."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import cycle
from typing import Any

import aiohttp

from hostile import bodies
from hostile.attackers.endless_engine import KINDS
from hostile.attackers.raw_requests import BODY_BYTES, hold_body, send_single_bytes
from hostile.shared_fleets import ASLEEP, CHAT, DRIBBLING, EMBEDDING, ENDLESS, KEYS, MAX_MODEL_LEN
from paternoster_traces.prompts import default_text

LARGE_BODIES = (
    (bodies.CHAT, "variables"),
    (bodies.CHAT, "documents"),
    (bodies.CHAT, "parameters of a tool"),
    (bodies.CHAT, "parts"),
    (bodies.CHAT, "calls"),
    (bodies.CHAT, "biases"),
    (bodies.RESPONSES, "parameters of a tool"),
    (bodies.MESSAGES, "blocks"),
)
"""Those that were read for the longest time, of gateways' largest size."""
REFUSED_PAUSE = 0.05
"""Seconds until a client that was refused asks again."""
NUM_REGEX_BYTES, NUM_PROPOSED_BYTES = 40_000, 1000
NUM_TEXTS, TEXT_TOKENS = 256, 125


@cache
def large_body(path: str, name: str) -> bytes:
    """One of :data:`hostile.bodies.SHAPES` in the most bytes that a gateway accepts."""
    return next(body for body in bodies.SHAPES if (body.path, body.name) == (path, name)).of_size(BODY_BYTES)


class AttackKinds:
    """Requests of the hostile tenant to gateways in turn."""

    def __init__(self, urls: Sequence[str], session: aiohttp.ClientSession) -> None:
        self._urls = cycle(urls)
        self._session = session
        self._text = default_text()
        self._large_bodies = cycle(LARGE_BODIES)
        self.answers: Counter[str] = Counter()
        """By kind and status."""
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "invalid parts": self.send_invalid_parts,
            "large bodies": self.send_large_body,
            "held bodies": self.hold_body,
            "held requests": self.hold_request,
            "unread answers": self.read_slowly,
            "full queue": self.fill_queue,
            "16 choices": self.ask_for_16_choices,
            "64 choices": self.ask_for_64_choices,
            "full KV cache": self.fill_kv_cache,
            "single bytes sent": self.send_single_bytes,
            "single bytes answered": self.receive_single_bytes,
            "small chunks answered": self.receive_small_chunks,
            "early hints": self.receive_early_hints,
            "refused prompts": self.send_refused_prompt,
            "long prompts": self.send_long_prompt,
            "capped long prompts": self.send_capped_long_prompt,
            "new schemas": self.send_new_schema,
            "long answers": self.ask_for_long_answer,
            "forced text": self.send_forced_text,
            "forced and proposed text": self.send_proposed_text,
            "many texts": self.embed_many_texts,
            "header floods": self.send_headers,
            **{kind: partial(self.receive_endless, kind) for kind in KINDS},
        }

    async def repeat(self, kind: str) -> None:
        """That kind of request, over and over."""
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self.kinds[kind]()
            await asyncio.sleep(0.01)

    async def send_invalid_parts(self) -> None:
        await self._post("invalid parts", bodies.CHAT, large_body(bodies.CHAT, "parts that are wrong"))

    async def send_large_body(self) -> None:
        path, name = next(self._large_bodies)
        await self._post("large bodies", path, large_body(path, name))

    async def hold_body(self) -> None:
        await hold_body(next(self._urls), bodies.CHAT, KEYS["hostile"])

    async def hold_request(self) -> None:
        await self._post("held requests", bodies.COMPLETION, {"model": ASLEEP, "prompt": "up"})

    async def read_slowly(self) -> None:
        body = {"model": CHAT, "prompt": "up", "max_tokens": MAX_MODEL_LEN // 2, "stream": True, "ignore_eos": True}
        async with self._request(bodies.COMPLETION, body) as response:
            self.answers[f"unread answers {response.status}"] += 1
            while await response.content.read(64):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def fill_queue(self) -> None:
        if await self._complete("full queue", prompt="up", max_tokens=32) != 200:
            await asyncio.sleep(REFUSED_PAUSE)

    async def ask_for_16_choices(self) -> None:
        await self._complete("16 choices", prompt=secrets.token_hex(4), n=16, max_tokens=512, temperature=1)

    async def ask_for_64_choices(self) -> None:
        await self._complete("64 choices", prompt=secrets.token_hex(4), n=64, max_tokens=128, temperature=1)

    async def fill_kv_cache(self) -> None:
        await self._complete("full KV cache", prompt=self._prompt(400), max_tokens=1024)

    async def send_single_bytes(self) -> None:
        await send_single_bytes(next(self._urls), bodies.COMPLETION)

    async def receive_single_bytes(self) -> None:
        await self._post(
            "single bytes answered", bodies.COMPLETION, {"model": DRIBBLING, "prompt": "up", "stream": True}
        )

    async def receive_small_chunks(self) -> None:
        body = {"model": DRIBBLING, "prompt": "small chunks", "stream": True}
        await self._post("small chunks answered", bodies.COMPLETION, body)

    async def receive_early_hints(self) -> None:
        await self._post("early hints", bodies.COMPLETION, {"model": DRIBBLING, "prompt": "hints", "stream": True})

    async def receive_endless(self, kind: str) -> None:
        await self._post(kind, bodies.COMPLETION, {"model": ENDLESS, "prompt": kind, "stream": True})

    async def send_refused_prompt(self) -> None:
        await self._complete("refused prompts", prompt=(self._text * 2)[:100_000], max_tokens=8)

    async def send_long_prompt(self) -> None:
        await self._complete("long prompts", prompt=self._prompt(2000), max_tokens=8)

    async def send_capped_long_prompt(self) -> None:
        await self._complete("capped long prompts", "capped", prompt=self._prompt(2000), max_tokens=8)

    async def send_new_schema(self) -> None:
        names = [secrets.token_hex(6) for _ in range(40)]
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names[:2]}
        form = {"type": "json_schema", "json_schema": {"name": "new", "schema": schema}}
        await self._complete("new schemas", prompt="up", max_tokens=32, response_format=form)

    async def ask_for_long_answer(self) -> None:
        await self._complete("long answers", prompt=secrets.token_hex(4), max_tokens=1024)

    async def send_forced_text(self) -> None:
        text = secrets.token_hex(NUM_REGEX_BYTES // 2)
        await self._complete("forced text", prompt="up", max_tokens=3000, structured_outputs={"regex": text})

    async def send_proposed_text(self) -> None:
        # Short enough that what is forced is proposed, with a mask behind each token.
        text = secrets.token_hex(NUM_PROPOSED_BYTES // 2)
        kind = "forced and proposed text"
        await self._complete(kind, prompt="up", max_tokens=3000, structured_outputs={"regex": text})

    async def embed_many_texts(self) -> None:
        texts = [self._prompt(TEXT_TOKENS) for _ in range(NUM_TEXTS)]
        await self._post("many texts", bodies.EMBEDDINGS, {"model": EMBEDDING, "input": texts})

    async def send_headers(self) -> None:
        host, _, port = next(self._urls).removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
            for _ in range(50):
                writer.write(b"X-Flood: " + b"a" * 65_536 + b"\r\n")
                await writer.drain()
            await reader.read(100)
        finally:
            writer.close()

    def _prompt(self, num_tokens: int) -> str:
        """Return text of about this many tokens, at four characters each, that no cache holds."""
        size = 4 * num_tokens
        start = secrets.randbelow(len(self._text) - size)
        return secrets.token_hex(4) + self._text[start : start + size]

    async def _complete(self, kind: str, key: str = "hostile", **fields: Any) -> int:
        body = {"model": CHAT, "temperature": 0, "ignore_eos": "structured_outputs" not in fields, **fields}
        return await self._post(kind, bodies.COMPLETION, body, key)

    async def _post(self, kind: str, path: str, body: bytes | dict[str, Any], key: str = "hostile") -> int:
        async with self._request(path, body, key) as response:
            self.answers[f"{kind} {response.status}"] += 1
            while await response.content.readany():
                pass
            return response.status

    def _request(
        self, path: str, body: bytes | dict[str, Any], key: str = "hostile"
    ) -> "aiohttp.client._RequestContextManager":
        headers = {"Authorization": f"Bearer {KEYS[key]}", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._session.post(next(self._urls) + path, data=data, headers=headers)
