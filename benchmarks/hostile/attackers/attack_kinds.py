"""What hostile clients do, one method a kind of request: each is done again as soon as it has ended."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
"""Bodies that were read for the longest time, of gateways' largest size."""
REFUSED_PAUSE = 0.05
"""Seconds until a client that was refused asks again."""
NUM_REGEX_BYTES, NUM_PROPOSED_BYTES = 40_000, 1000
NUM_TEXTS, TEXT_TOKENS = 256, 125


@cache
def large_body(path: str, name: str) -> bytes:
    """One of :data:`hostile.bodies.SHAPES` in the most bytes that a gateway accepts."""
    return next(body for body in bodies.SHAPES if (body.path, body.name) == (path, name)).of_size(BODY_BYTES)


@dataclass(frozen=True, slots=True)
class Post:
    """One request, with the key of a tenant."""

    body: bytes | dict[str, Any]
    path: str = bodies.COMPLETION
    key: str = "hostile"


def completion(prompt: str, max_tokens: int, **fields: Any) -> Post:
    """An answer of all tokens, but for one that a grammar ends."""
    body = {"model": CHAT, "temperature": 0, "ignore_eos": "structured_outputs" not in fields}
    return Post({**body, "prompt": prompt, "max_tokens": max_tokens, **fields})


def stream(model: str, prompt: str) -> Post:
    return Post({"model": model, "prompt": prompt, "stream": True})


def force_text(num_bytes: int) -> Post:
    return completion("up", 3000, structured_outputs={"regex": secrets.token_hex(num_bytes // 2)})


def draw_format() -> dict[str, Any]:
    """A schema that none before had."""
    names = [secrets.token_hex(6) for _ in range(40)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names[:2]}
    return {"type": "json_schema", "json_schema": {"name": "new", "schema": schema}}


class AttackKinds:
    """Requests of the hostile tenant to gateways in turn."""

    def __init__(self, urls: Sequence[str], session: aiohttp.ClientSession) -> None:
        self._urls = cycle(urls)
        self._session = session
        self._text = default_text()
        self._large_bodies = cycle(LARGE_BODIES)
        self.answers: Counter[str] = Counter()
        """Answers by kind and status."""
        requests: dict[str, Callable[[], Post]] = {
            "invalid parts": lambda: Post(large_body(bodies.CHAT, "parts that are wrong"), bodies.CHAT),
            "large bodies": lambda: Post(large_body(*(shape := next(self._large_bodies))), shape[0]),
            "held requests": lambda: Post({"model": ASLEEP, "prompt": "up"}),
            "16 choices": lambda: completion(secrets.token_hex(4), 512, n=16, temperature=1),
            "64 choices": lambda: completion(secrets.token_hex(4), 128, n=64, temperature=1),
            "full KV cache": lambda: completion(self._prompt(400), 1024),
            "single bytes answered": lambda: stream(DRIBBLING, "up"),
            "small chunks answered": lambda: stream(DRIBBLING, "small chunks"),
            "early hints": lambda: stream(DRIBBLING, "hints"),
            "refused prompts": lambda: completion((self._text * 2)[:100_000], 8),
            "long prompts": lambda: completion(self._prompt(2000), 8),
            "capped long prompts": lambda: replace(completion(self._prompt(2000), 8), key="capped"),
            "new schemas": lambda: completion("up", 32, response_format=draw_format()),
            "long answers": lambda: completion(secrets.token_hex(4), 1024),
            "forced text": lambda: force_text(NUM_REGEX_BYTES),
            # Short enough that what is forced is proposed, with a mask behind each token.
            "forced and proposed text": lambda: force_text(NUM_PROPOSED_BYTES),
            "many texts": lambda: Post({"model": EMBEDDING, "input": self._texts()}, bodies.EMBEDDINGS),
            **{kind: partial(stream, ENDLESS, kind) for kind in KINDS},
        }
        self.kinds: dict[str, Callable[[], Awaitable[object]]] = {
            "held bodies": lambda: hold_body(next(self._urls), bodies.CHAT, KEYS["hostile"]),
            "unread answers": self.read_slowly,
            "full queue": self.fill_queue,
            "single bytes sent": lambda: send_single_bytes(next(self._urls), bodies.COMPLETION),
            "header floods": self.send_headers,
            **{kind: partial(self._send, kind, draw) for kind, draw in requests.items()},
        }

    async def repeat(self, kind: str) -> None:
        """That kind of request, over and over."""
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self.kinds[kind]()
            await asyncio.sleep(0.01)

    async def read_slowly(self) -> None:
        body = {"model": CHAT, "prompt": "up", "max_tokens": MAX_MODEL_LEN // 2, "stream": True, "ignore_eos": True}
        async with self._request(Post(body)) as response:
            self.answers[f"unread answers {response.status}"] += 1
            while await response.content.read(64):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def fill_queue(self) -> None:
        if await self._send("full queue", partial(completion, "up", 32)) != 200:
            await asyncio.sleep(REFUSED_PAUSE)

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

    def _texts(self) -> list[str]:
        return [self._prompt(TEXT_TOKENS) for _ in range(NUM_TEXTS)]

    async def _send(self, kind: str, draw: Callable[[], Post]) -> int:
        async with self._request(draw()) as response:
            self.answers[f"{kind} {response.status}"] += 1
            while await response.content.readany():
                pass
            return response.status

    def _request(self, post: Post) -> "aiohttp.client._RequestContextManager":
        headers = {"Authorization": f"Bearer {KEYS[post.key]}", "Content-Type": "application/json"}
        data = post.body if isinstance(post.body, bytes) else json.dumps(post.body).encode()
        return self._session.post(next(self._urls) + post.path, data=data, headers=headers)
