"""The texts of one call on their way through the engine."""

import asyncio
from collections import deque
from collections.abc import Sequence

from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.errors import QueueFull, TenantQueueFull
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.server.generation.failures import failure_of
from paternoster_engine.server.loop import EngineLoop


class VectorWork:
    """Requests whose vectors are awaited. The caller that starts one closes it.

    No more of a call is queued than two steps can take, and may wait: a call of thousands of texts neither fills the
    queue nor keeps others' behind all of its own. Its tenant's quota takes the call as a whole when it begins.
    """

    def __init__(self, loop: EngineLoop, requests: Sequence[Request]) -> None:
        self._loop = loop
        self._requests = requests
        self._waiting = deque(requests)
        self._open: set[str] = set()
        self._outputs: asyncio.Queue[StepOutput] = asyncio.Queue()
        config = loop.engine.scheduler.config
        self._at_once = min(2 * config.max_num_seqs, config.most_queued(requests[0].spec.limits))

    @property
    def num_tokens(self) -> int:
        return sum(request.num_prompt for request in self._requests)

    async def collect_vectors(self) -> list[Sequence[float]]:
        """The vector of each request.

        Raises :class:`AdmissionError` where not even the first is taken, and as :meth:`Generation.stream_deltas`.
        """
        while self._waiting or self._open:
            if 2 * len(self._open) <= self._at_once:
                await self._submit()
            outputs = [await self._outputs.get()]
            while not self._outputs.empty():
                outputs.append(self._outputs.get_nowait())
            for output in outputs:
                self._open.discard(output.request.request_id)
                assert output.finish_reason is not None
                if output.finish_reason is not FinishReason.STOP:
                    raise failure_of(output.request, output.finish_reason)
        return [request.vector for request in self._requests]

    def close(self) -> None:
        """End what is not finished before the next step. May be called more than once."""
        self._loop.abort(self._open)
        self._open.clear()
        self._waiting.clear()
        self._loop.settle_requests(self._requests)

    async def _submit(self) -> None:
        count = min(self._at_once - len(self._open), len(self._waiting))
        if count == 0:
            return
        following = list(self._waiting)[count:] if len(self._waiting) == len(self._requests) else ()
        portion = [self._waiting.popleft() for _ in range(count)]
        self._open.update(request.request_id for request in portion)
        try:
            await self._loop.submit(portion, self._outputs.put_nowait, following=following)
        except (QueueFull, TenantQueueFull):
            self._open.difference_update(request.request_id for request in portion)
            if not self._open:
                raise
            # Some of the call are on their way: the others follow when these are done.
            self._waiting.extendleft(reversed(portion))
