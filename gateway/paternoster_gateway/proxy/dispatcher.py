"""Routes requests on asyncio: the clocks, and a future for each request that waits."""

import asyncio
import time
from collections.abc import Callable, Sequence

from paternoster_gateway.call.router import Router
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import RoutedRequest


class Dispatcher(Router):
    """Has requests wait until they are woken; it decides nothing itself."""

    def __init__(self, balancer: Balancer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(balancer or Balancer(), clock, time.time, self.wake_requests)
        self._waiting: dict[RoutedRequest, asyncio.Future[None]] = {}

    async def await_wake(self, request: RoutedRequest, until: float | None = None) -> None:
        """Return once ``request`` is woken, at the latest at ``until``, in seconds of the clock."""
        woken = self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(None if until is None else until - self.clock()):
                await woken
        except TimeoutError:
            return
        finally:
            del self._waiting[request]

    def wake_requests(self, requests: Sequence[RoutedRequest]) -> None:
        for request in requests:
            woken = self._waiting.get(request)
            if woken is not None and not woken.done():
                woken.set_result(None)
