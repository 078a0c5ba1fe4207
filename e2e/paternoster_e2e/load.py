"""Streams that are kept open against a gateway, and an account of each: whole, or dropped and why."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openai import APIError, AsyncOpenAI

WORDS = ("lift", "rider", "floor", "car", "shaft", "door", "cable", "wheel", "night", "stone", "river", "song")


class StreamLoad:
    """``clients`` requests at any time, each a stream with the official client, none repeated."""

    def __init__(
        self, url: str, model: str, clients: int, *, prompt_words: int = 60, max_tokens: int = 96, key: str = "none"
    ) -> None:
        self.completed = 0
        self.dropped: list[str] = []
        """One line for each stream that did not come to its end."""
        self._left: dict[int, int] = {}
        """Pieces that are left of each open stream that has begun, a token each, by client."""
        self._url = url
        self._model = model
        self._clients = clients
        self._prompt_words = prompt_words
        self._max_tokens = max_tokens
        self._key = key
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No new streams; returns when those under way have ended."""
        self._stopping.set()
        self._thread.join()

    @property
    def least_left(self) -> int:
        """Tokens to come of the open stream that ends first; 0 where one has none yet."""
        left = list(self._left.values())
        return min(left) if len(left) == self._clients else 0

    async def _run(self) -> None:
        async with AsyncOpenAI(base_url=f"{self._url}/v1", api_key=self._key, max_retries=0, timeout=600) as client:
            await asyncio.gather(*(self._client(client, number) for number in range(self._clients)))

    async def _client(self, client: AsyncOpenAI, number: int) -> None:
        chance = random.Random(number)
        while not self._stopping.is_set():
            prompt = " ".join(chance.choices(WORDS, k=chance.randint(self._prompt_words // 2, self._prompt_words)))
            try:
                await self._stream(client, prompt, number)
                self.completed += 1
            except (APIError, ValueError) as error:
                self.dropped.append(f"{type(error).__name__}: {error} ({error.__cause__!r})")
                await asyncio.sleep(0.2)
            finally:
                self._left.pop(number, None)

    async def _stream(self, client: AsyncOpenAI, prompt: str, number: int) -> None:
        options: dict[str, Any] = {"ignore_eos": True}
        stream = await client.completions.create(
            model=self._model, prompt=prompt, max_tokens=self._max_tokens, stream=True, extra_body=options
        )
        finished = None
        async for chunk in stream:
            self._left[number] = self._left.get(number, self._max_tokens) - 1
            finished = chunk.choices[0].finish_reason if chunk.choices else finished
        if finished is None:
            raise ValueError("the stream ended without a finish_reason")


@contextmanager
def streams(url: str, model: str, clients: int, **options: Any) -> Iterator[StreamLoad]:
    """A load that runs while the block does; its account is whole afterwards."""
    load = StreamLoad(url, model, clients, **options)
    load.start()
    try:
        yield load
    finally:
        load.stop()
