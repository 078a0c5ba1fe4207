"""Clients who each send their next request once the last one was answered, and whose requests may change shape."""

import asyncio
import random
import time
from dataclasses import dataclass

from paternoster_load.client import BenchClient
from paternoster_load.results import BenchRequest, RequestResult
from paternoster_traces.prompts import PromptSource


@dataclass(frozen=True, slots=True)
class Shape:
    """Mean tokens of a request; lengths are uniform from half of it to one and a half times."""

    prompt: int
    answer: int

    @property
    def longest(self) -> int:
        return 3 * (self.prompt + self.answer) // 2 + 1


class ClosedLoop:
    """Sequence of requests that is the same each time that one is made."""

    def __init__(self, client: BenchClient, prompts: PromptSource, shape: Shape) -> None:
        self.shape = shape
        self.results: list[RequestResult] = []
        self._client, self._prompts = client, prompts
        self._lengths = random.Random(0)
        self._number = 0
        self._in_flight: dict[int, float] = {}
        """When each was sent, by number."""

    async def run(self, clients: int) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(clients):
                tasks.create_task(self._send_one_after_the_other())

    async def answered(self, before: float) -> None:
        """Wait until no request is left that was sent earlier, while others go on as before."""
        while any(sent < before for sent in self._in_flight.values()):  # noqa: ASYNC110 - of other tasks
            await asyncio.sleep(0.1)

    async def _send_one_after_the_other(self) -> None:
        while True:
            request = self._next()
            self._in_flight[request.index] = time.perf_counter()
            try:
                result = await self._client.send(request)
            finally:
                del self._in_flight[request.index]
            self.results.append(result)
            if result.error:
                # Not as fast as errors come.
                await asyncio.sleep(1)

    def _next(self) -> BenchRequest:
        prompt, answer = (
            max(2, round(mean * self._lengths.uniform(0.5, 1.5))) for mean in (self.shape.prompt, self.shape.answer)
        )
        self._number += 1
        return BenchRequest(self._number, self._prompts.make_prompt(self._number, prompt), answer)
