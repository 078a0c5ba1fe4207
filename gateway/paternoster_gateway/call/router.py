"""Routes the requests of one gateway by one balancer; pure: clocks and what wakes held requests are the driver's."""

from collections.abc import Callable, Collection, Sequence

from paternoster_contract.routing import Replica, RoutingTable
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.errors import GatewayError, deadline_passed, too_many, unavailable_error
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import (
    Queue,
    Reject,
    RejectionCause,
    Result,
    ReturnResult,
    RoutedRequest,
    Send,
    Turn,
)
from paternoster_gateway.routing.prefix_routing import PromptChain, PromptTokens

Wake = Callable[[Sequence[RoutedRequest]], object]
"""Continues requests that are held, in order; of others it does nothing."""


class Router:
    """The balancer, and the requests that each of its decisions releases."""

    def __init__(
        self, balancer: Balancer, clock: Callable[[], float], calendar: Callable[[], float], wake: Wake
    ) -> None:
        """``clock``: seconds that never go back; ``calendar``: Unix seconds, by which keys expire."""
        self.balancer = balancer
        self.clock = clock
        self._calendar = calendar
        self._wake = wake

    def change_table(self, table: RoutingTable) -> None:
        """Route by ``table`` from now on, held requests first."""
        self._wake_released(self.balancer.on_table(table))

    def open_request(
        self,
        admission: ClientAdmission,
        prompt: PromptChain | None = None,
        turn: Turn | None = None,
        subset: Collection[str] | None = None,
    ) -> RoutedRequest:
        """A client's request; ``subset``: as :attr:`RoutedRequest.subset`."""
        request = self.balancer.open_request(
            admission.model, admission.fleet, self.clock(), name=admission.name, sender=admission.sender,
            prompt=prompt, turn=turn,
        )  # fmt: skip
        request.subset = subset
        return request

    def isolates_tenants(self, model: str) -> bool | None:
        """Whether chains for ``model`` have the tenant; None where there are no replicas between which they decide."""
        row = self.balancer.table.models.get(model)
        if row is None or len(row.replicas) < 2:
            return None
        return self.balancer.prefixes.isolates_tenants([replica.url for replica in row.replicas])

    def decide(self, request: RoutedRequest, admission: ClientAdmission) -> Send | Queue | ReturnResult:
        """The decision for ``request`` now.

        Raises :class:`GatewayError` for a rejection, and what :meth:`ClientAdmission.route` raises, at whatever moment.
        """
        row = admission.route(self.balancer.table, self._calendar())
        decision = self.balancer.route(request, row, self.clock())
        self._wake_released(self.balancer.pop_released())
        if isinstance(decision, Reject):
            raise _error_of(decision)
        if isinstance(decision, Queue) and decision.evicted is not None:
            self._wake([decision.evicted])
        return decision

    def route_hand_over(self, request: RoutedRequest, admission: ClientAdmission) -> Send | None:
        """Route a hand-over as :meth:`Balancer.route_hand_over` does; raises what ``admission`` raises."""
        row = admission.route(self.balancer.table, self._calendar())
        return self.balancer.route_hand_over(request, row, self.clock())

    def list_fallbacks(self, request: RoutedRequest, admission: ClientAdmission) -> list[Replica]:
        """List fallbacks, see :meth:`Balancer.list_fallbacks`; raises what ``admission`` raises."""
        row = admission.route(self.balancer.table, self._calendar())
        return self.balancer.list_fallbacks(request, row, self.clock())

    def report_fallback(self, request: RoutedRequest, failed: Sequence[str], url: str | None) -> None:
        """A proxy reached none of ``failed``, and sent ``request`` to ``url``; None: to no replica of its fleet."""
        for each in failed:
            self.report_result(request, each, Result.UNREACHABLE)
            self.end_attempt(request, each)
        if url is not None:
            self.balancer.begin_fallback(request, url)

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
        self._wake_released(self.balancer.on_result(request, url, result, self.clock(), served=served, tokens=tokens))

    def count_output(self, request: RoutedRequest, tokens: int) -> None:
        """The client gets ``tokens`` more of its answer."""
        self.balancer.on_output(request, tokens)

    def end_attempt(self, request: RoutedRequest, url: str) -> None:
        """The attempt at ``url`` has ended: its place is another's."""
        self._wake_released(self.balancer.on_attempt_end(request, url))

    def end_request(self, request: RoutedRequest) -> None:
        """The request gets no answer any more."""
        self._wake_released(self.balancer.on_disconnect(request))

    def report_hung(self, url: str, hung: bool) -> None:
        """The replica at ``url`` answers no probe, or answers them again."""
        self._wake_released(self.balancer.on_engine_report(url, hung=hung))

    def count_replicas(self, model: str) -> int:
        """Number of replicas in the table, ready or not."""
        row = self.balancer.table.models.get(model)
        return 0 if row is None else len(row.replicas)

    def count_held(self, model: str) -> int:
        return self.balancer.count_held(model)

    def list_waiting(self) -> list[str]:
        """Models whose requests wait for a replica, or were rejected for want of one."""
        models = self.balancer.table.models
        return [name for name, fleet in self.balancer.list_waiting() if name in models and models[name].fleet == fleet]

    def count_rejected(self, model: str) -> int:
        return self.balancer.count_rejected(model, self.clock())

    def _wake_released(self, requests: Sequence[RoutedRequest]) -> None:
        if requests:
            self._wake(requests)


def _error_of(rejection: Reject) -> GatewayError:
    match rejection.cause:
        case RejectionCause.NO_REPLICA:
            return unavailable_error(rejection.reason, rejection.retry_after)
        case RejectionCause.FULL:
            return too_many(rejection.reason, rejection.retry_after)
        case RejectionCause.DEADLINE:
            return deadline_passed(rejection.reason)
