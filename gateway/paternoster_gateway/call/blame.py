"""Whether one call is why replicas stopped, and what is refused once it is."""

from collections.abc import Collection

from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import digest_of, quarantine_error
from paternoster_gateway.call.actions import ProbeReplicas, Steps
from paternoster_gateway.call.attempt import Attempt
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.registry import SessionRegistry
from paternoster_gateway.call.suspicion import SuspectedCall, Suspicion
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.routing.decisions import RoutedRequest


class CallBlame:
    """The stops that one call was at, and the quarantine of its body."""

    def __init__(
        self, registry: SessionRegistry, call: Call, admission: ClientAdmission, request: RoutedRequest
    ) -> None:
        self._registry = registry
        self._router = registry.router
        self._call = call
        self._admission = admission
        self._request = request
        self._suspected = SuspectedCall(registry.stops, admission.fleet, lambda: _digest_body(call, admission))

    @property
    def is_suspect(self) -> bool:
        """Whether several replicas stopped with the call."""
        return self._suspected.is_suspect

    def refuse_quarantined(self) -> None:
        """Raises :class:`GatewayError` (422) where the body of the call is refused now."""
        now, quarantine = self._router.clock(), self._registry.quarantine
        if quarantine.count(now) and quarantine.contains(_digest_body(self._call, self._admission), now):
            self._registry.observer.on_quarantined(self._call)
            raise quarantine_error(self._call.model)

    def quarantine_call(self, url: str) -> GatewayError:
        """The error for a client whose call made the replica at ``url`` stop; no other one gets such a call."""
        digest, now = _digest_body(self._call, self._admission), self._router.clock()
        self._registry.quarantine.add(digest, now, self._admission.namespace)
        self._registry.observer.on_stopped_with(url, self._call)
        self._registry.observer.on_quarantined(self._call)
        return quarantine_error(self._call.model)

    def record_left(self, url: str, read_by: float) -> None:
        """The client left before the replica at ``url`` sent headers; ``read_by`` is as in :class:`Quarantine`."""
        digest = _digest_body(self._call, self._admission)
        self._registry.quarantine.add_left(url, digest, read_by, self._admission.namespace)

    def judge_break(self, url: str, sent_at: float, *, suspected: bool) -> Steps[bool]:
        """Whether the call is why the replica at ``url`` broke off a stream that it was sent at ``sent_at``.

        The same where a step of it failed there. ``suspected``: it sent no frame. A stream with frames of its replica
        is no suspect: the replica that goes on with it shows whether it is.
        """
        if not suspected:
            self._suspected.clear_stops()
        now = self._router.clock()
        self._suspected.record_stop(url, now, suspected=suspected, seconds=now - sent_at)
        return self.is_suspect and (yield from self._is_cause())

    def judge_closed(self, attempt: Attempt, sent_at: float) -> Steps[bool]:
        """Whether the call is why a replica closed a connection: it was sent a stream at ``sent_at`` to go on with."""
        suspected, now = attempt.broke_off or attempt.suspicion is not Suspicion.NONE, self._router.clock()
        self._suspected.record_stop(attempt.url, now, suspected=suspected, closed=True, seconds=now - sent_at)
        return self.is_suspect and (yield from self._is_cause())

    def is_blamed(self, attempt: Attempt) -> Steps[bool]:
        """Whether the call is why replicas stopped, the one of ``attempt`` included, which sent no byte."""
        failed = attempt.handed_over is not None and attempt.handed_over.failed
        if attempt.handed_over is not None and attempt.handed_over.broken:
            self._suspected.clear_stops()  # the replica computed tokens of it: the next one shows whether it is why
        if failed or attempt.is_stop:
            self._suspected.record_stop(
                attempt.url, self._router.clock(), suspected=failed or attempt.suspicion is not Suspicion.NONE,
                closed=attempt.closed_connection,
            )  # fmt: skip
        return attempt.suspicion is Suspicion.CERTAIN or (self.is_suspect and (yield from self._is_cause()))

    def _is_cause(self) -> Steps[bool]:
        """Whether a suspect is why replicas stopped, of which those that answer a probe did not stop."""
        answered: Collection[str] = yield ProbeReplicas(tuple(self._suspected.closed))
        self._suspected.judge_closed(answered)
        return self._suspected.is_blamed(self._router.count_replicas(self._request.model), self._router.clock())


def _digest_body(call: Call, admission: ClientAdmission) -> bytes:
    tenant = "" if admission.identity is None else admission.identity.tenant
    return digest_of(admission.fleet, tenant, call.path, call.body)
