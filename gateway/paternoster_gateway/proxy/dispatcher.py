"""Routes requests on asyncio: the clocks, and a future for each request that waits."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.router import Router
from paternoster_gateway.proxy.prompt import read_prompt
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import RoutedRequest


class Dispatcher(Router):
    """Has requests wait until they are woken; it decides nothing itself."""

    def __init__(self, balancer: Balancer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(balancer or Balancer(), clock, time.time, self.wake_requests)
        self._waiting: dict[RoutedRequest, asyncio.Future[None]] = {}

    async def open_call(
        self, call: Call, admission: ClientAdmission, subset: Collection[str] | None = None
    ) -> RoutedRequest:
        """The request of ``call``, with its text where that decides between replicas."""
        prompt, isolates = None, self.isolates_tenants(admission.model)
        if isolates is not None:
            tenant = "" if admission.identity is None or not isolates else admission.identity.tenant
            prompt = await read_prompt(call, admission.served_as, tenant)
        turn = admission.queue_turn(call.priority, len(call.body), call.deadline_seconds)
        return self.open_request(admission, prompt, turn, subset)

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
