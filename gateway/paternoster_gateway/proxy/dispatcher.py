"""Runs the balancer on asyncio: the clock, and a future for each held request."""

import asyncio
import time
from collections.abc import Callable, Sequence

from paternoster_contract.routing import RoutingTable
from paternoster_gateway.admission.admission import Admission
from paternoster_gateway.errors import GatewayError, deadline_passed, too_many, unavailable_error
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Cause, Queue, Reject, Result, ReturnResult, RoutedRequest, Send, Turn
from paternoster_gateway.routing.prefix_routing import Prompt, PromptTokens


class Dispatcher:
    """Routes each request by one balancer and waits while it holds the request; it decides nothing itself."""

    def __init__(self, balancer: Balancer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.balancer = balancer or Balancer()
        self._clock = clock
        self._waiting: dict[RoutedRequest, asyncio.Future[None]] = {}

    def change_table(self, table: RoutingTable) -> None:
        """Route by ``table`` from now on, held requests first."""
        self._wake_requests(self.balancer.on_table(table))

    def open_request(
        self, admission: Admission, prompt: Prompt | None = None, turn: Turn | None = None
    ) -> RoutedRequest:
        return self.balancer.open_request(
            admission.model, admission.fleet, self._clock(), name=admission.name, sender=admission.sender,
            prompt=prompt, turn=turn,
        )  # fmt: skip

    def isolates_tenants(self, model: str) -> bool | None:
        """Whether chains for ``model`` have the tenant; None where there are no replicas between which they decide."""
        row = self.balancer.table.models.get(model)
        if row is None or len(row.replicas) < 2:
            return None
        return self.balancer.prefixes.isolates_tenants([replica.url for replica in row.replicas])

    async def route(self, request: RoutedRequest, admission: Admission) -> Send | ReturnResult:
        """The decision for ``request``, once it is held no longer.

        Raises :class:`GatewayError` for a rejection, and what :meth:`Admission.route` raises, at whatever moment.
        """
        while True:
            row = admission.route(self.balancer.table, time.time())
            decision = self.balancer.route(request, row, self._clock())
            self._wake_requests(self.balancer.pop_released())
            if isinstance(decision, Reject):
                raise _error_of(decision)
            if not isinstance(decision, Queue):
                return decision
            if decision.evicted is not None:
                self._wake_requests([decision.evicted])
            await self._wait(request, decision.until)

    def route_hand_over(self, request: RoutedRequest, admission: Admission) -> Send | None:
        """As :meth:`Balancer.route_hand_over`; raises what :meth:`Admission.route` raises."""
        row = admission.route(self.balancer.table, time.time())
        return self.balancer.route_hand_over(request, row, self._clock())

    def report_result(
        self,
        request: RoutedRequest,
        url: str,
        result: Result,
        *,
        served: bool = True,
        tokens: PromptTokens | None = None,
    ) -> None:
        """Report what came of the attempt at ``url``, as :meth:`Balancer.on_result` has it."""
        self._wake_requests(self.balancer.on_result(request, url, result, self._clock(), served=served, tokens=tokens))

    def count_output(self, request: RoutedRequest, tokens: int) -> None:
        """The client gets ``tokens`` more of its answer."""
        self.balancer.on_output(request, tokens)

    def end_attempt(self, request: RoutedRequest, url: str) -> None:
        """The attempt at ``url`` has ended: its place is another's."""
        self._wake_requests(self.balancer.on_attempt_end(request, url))

    def end_request(self, request: RoutedRequest) -> None:
        """The request gets no answer any more."""
        self._wake_requests(self.balancer.on_disconnect(request))

    def report_hung(self, url: str, hung: bool) -> None:
        """The replica at ``url`` answers no probe, or answers them again."""
        self._wake_requests(self.balancer.on_engine_report(url, hung=hung))

    def count_replicas(self, model: str) -> int:
        """Those in the table, ready or not."""
        row = self.balancer.table.models.get(model)
        return 0 if row is None else len(row.replicas)

    def count_held(self, model: str) -> int:
        return self.balancer.count_held(model)

    def list_waiting(self) -> list[str]:
        """Models whose requests wait for a replica, or were rejected for want of one."""
        models = self.balancer.table.models
        return [name for name, fleet in self.balancer.list_waiting() if name in models and models[name].fleet == fleet]

    def count_rejected(self, model: str) -> int:
        return self.balancer.count_rejected(model, self._clock())

    async def _wait(self, request: RoutedRequest, until: float) -> None:
        """Until the balancer releases or evicts ``request``, at most ``until``."""
        released = self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(until - self._clock()):
                await released
        except TimeoutError:
            return
        finally:
            del self._waiting[request]

    def _wake_requests(self, requests: Sequence[RoutedRequest]) -> None:
        for request in requests:
            released = self._waiting.get(request)
            if released is not None and not released.done():
                released.set_result(None)


def _error_of(rejection: Reject) -> GatewayError:
    match rejection.cause:
        case Cause.NO_REPLICA:
            return unavailable_error(rejection.reason, rejection.retry_after)
        case Cause.FULL:
            return too_many(rejection.reason, rejection.retry_after)
        case Cause.DEADLINE:
            return deadline_passed(rejection.reason)
