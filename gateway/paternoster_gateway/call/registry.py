"""State that the sessions of one gateway share, and which of their calls a draining replica may hand over.

A stream is moved by its journal, which the gateway has. Of an answer without a byte only the replica has the tokens:
the driver requests them once another replica has a place, and the replica answers the call with them.
"""

from dataclasses import dataclass

from paternoster_contract.routing import Replica
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.observer import CallObserver
from paternoster_gateway.call.probation import Probation
from paternoster_gateway.call.router import Router, Wake
from paternoster_gateway.call.suspicion import ReplicaStops
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.routing.decisions import RoutedRequest


@dataclass(slots=True, eq=False)
class UnansweredCall:
    """A call at a replica that has sent no byte of the answer."""

    request: RoutedRequest
    url: str
    """URL of the replica."""
    call: Call
    admission: ClientAdmission
    target: Replica | None = None
    """The replica with a place for the call, once it may be handed over."""


class SessionRegistry:
    """The state that sessions share, and the calls of which no byte has come."""

    def __init__(self, router: Router, quarantine: Quarantine, observer: CallObserver, wake: Wake) -> None:
        self.router = router
        self.quarantine = quarantine
        self.observer = observer
        self.stops = ReplicaStops()
        self.probation = Probation(wake)
        self._unanswered: dict[str, dict[UnansweredCall, None]] = {}
        """Calls by URL of the replica, in the order in which they were sent."""

    def add_unanswered(self, call: UnansweredCall) -> None:
        self._unanswered.setdefault(call.url, {})[call] = None

    def remove_unanswered(self, call: UnansweredCall) -> None:
        """Its answer has begun, or its attempt has ended; the target is to be taken or released."""
        calls = self._unanswered.get(call.url, {})
        calls.pop(call, None)
        if not calls:
            self._unanswered.pop(call.url, None)

    def list_movable(self) -> list[UnansweredCall]:
        """Calls without a byte at draining replicas."""
        return [call for url in sorted(self.router.balancer.handing_over) for call in self._unanswered.get(url, ())]

    def find_target(self, call: UnansweredCall) -> Replica | None:
        """A place for ``call`` at another replica, which it has from now on."""
        try:
            decision = self.router.route_hand_over(call.request, call.admission)
        except GatewayError:
            return None  # the client may begin nothing any more; the call was admitted
        call.target = None if decision is None else decision.replica
        return call.target

    def take_target(self, call: UnansweredCall) -> Replica | None:
        """The replica with a place for a call that was handed over; None where the replica did so by itself."""
        target, call.target = call.target, None
        if target is not None:
            self.router.balancer.on_hand_over(call.request, target.url)
        return target

    def release_target(self, call: UnansweredCall, *, again: bool = True) -> None:
        """The call stays where it is; ``again``: the target may be chosen for it later."""
        target, call.target = call.target, None
        if target is not None:
            self.router.balancer.cancel_hand_over(call.request, target.url, again=again)
            self.router.end_attempt(call.request, target.url)
