"""Calls of all kinds, well-behaved and not, and what became of each."""

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import aiohttp

from hostile.shared_fleets import CONTEXT, KEYS, MODEL
from paternoster_traces.prompts import default_text

PATIENCE_SECONDS = 300
"""After which a call counts as one without an answer. One that moves to another engine twice waits three times, and on
two busy cores a wait is a minute.
"""


class End(StrEnum):
    WHOLE = "whole answer"
    ERROR = "honest error"
    CUT = "cut by us"
    LOST = "neither answer nor error"


@dataclass
class Outcomes:
    """Counted by kind of call and end."""

    counts: Counter[tuple[str, End]] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    """What was seen of the first that were lost."""

    def count(self, kind: str, end: End, seen: str = "") -> None:
        self.counts[kind, end] += 1
        if end is End.LOST and len(self.lost) < 10:
            self.lost.append(f"{kind}: {seen[:300]}")


class Caller:
    """Makes calls to one gateway."""

    def __init__(self, url: str, session: aiohttp.ClientSession, outcomes: Outcomes, seed: int = 0) -> None:
        self._url = url
        self._session = session
        self._outcomes = outcomes
        self._random = random.Random(seed)
        self._text = default_text()

    async def any(self) -> None:
        """One call of some kind."""
        kinds = (self.short, self.short, self.long, self.streamed, self.leaves, self.reads_slowly,
                 self.invalid, self.several, self.beam, self.too_long)  # fmt: skip
        await self._random.choice(kinds)()

    async def short(self) -> None:
        await self._whole("short", {"max_tokens": 8})

    async def long(self) -> None:
        await self._whole("long prompt", {"prompt": self._words(CONTEXT // 2), "max_tokens": 8})

    async def too_long(self) -> None:
        await self._whole("1 MB prompt", {"prompt": self._text * 10, "max_tokens": 8})

    async def several(self) -> None:
        await self._whole("n = 4", {"n": 4, "max_tokens": 8, "temperature": 1})

    async def beam(self) -> None:
        await self._whole("beam search", {"n": 2, "use_beam_search": True, "temperature": 0, "max_tokens": 8})

    async def invalid(self) -> None:
        bodies = [
            b"{",
            b"[]",
            rb'{"model": "\ud800"}',
            b'{"model": "%s", "prompt": %s' % (MODEL.encode(), b"[" * 10_000),
        ]
        bodies += [json.dumps({"model": MODEL, **each}).encode() for each in ({"prompt": 7}, {"n": -1}, {"x": 1}, {})]
        await self._post("invalid body", self._random.choice(bodies))

    async def streamed(self) -> None:
        await self._stream("streamed", None, 0.0)

    async def leaves(self) -> None:
        await self._stream("leaves early", self._random.uniform(0, 2), 0.0)

    async def reads_slowly(self) -> None:
        await self._stream("reads slowly", None, self._random.uniform(0, 0.3))

    def _words(self, count: int) -> str:
        """About ``count`` tokens that no cache has."""
        start = self._random.randrange(len(self._text) // 2)
        return self._text[start : start + 3 * count]

    async def _whole(self, kind: str, fields: dict[str, object]) -> None:
        body = {"model": MODEL, "prompt": self._words(16), "temperature": 0, "ignore_eos": True, **fields}
        await self._post(kind, json.dumps(body).encode())

    async def _post(self, kind: str, body: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._call(body) as response:
                document = await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._outcomes.count(kind, End.LOST, repr(error))
            return
        if response.status == 200 and document["usage"]["completion_tokens"] >= 1:
            self._outcomes.count(kind, End.WHOLE)
        elif response.status >= 400 and response.status != 500 and "message" in document.get("error", {}):
            self._outcomes.count(kind, End.ERROR)
        else:
            self._outcomes.count(kind, End.LOST, f"{response.status} {document}")

    async def _stream(self, kind: str, leaves_after: float | None, pause: float) -> None:
        fields = {"stream": True, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"model": MODEL, "prompt": self._words(32), **fields}).encode()
        started, text = time.monotonic(), b""
        try:
            async with asyncio.timeout(leaves_after or PATIENCE_SECONDS), self._call(body) as response:
                async for chunk in response.content.iter_any():
                    text += chunk
                    await asyncio.sleep(pause)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            cut = leaves_after is not None and time.monotonic() - started >= leaves_after
            self._outcomes.count(kind, End.CUT if cut else End.LOST, repr(error))
            return
        if response.status != 200:
            self._outcomes.count(kind, End.ERROR if b'"error"' in text else End.LOST, text.decode())
        elif not text.endswith(b"data: [DONE]\n\n"):
            self._outcomes.count(kind, End.LOST, text.decode()[-200:])
        else:
            self._outcomes.count(kind, End.ERROR if b'data: {"error"' in text else End.WHOLE)

    def _call(self, body: bytes) -> "aiohttp.client._RequestContextManager":
        headers = {"Authorization": f"Bearer {KEYS['quiet']}", "Content-Type": "application/json"}
        return self._session.post(f"{self._url}/v1/completions", data=body, headers=headers)
