"""Which fleet a request may be sent to: its key against the keys of the fleet that it names. Pure."""

from dataclasses import dataclass, field

from paternoster_contract.keys import matches
from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.errors import another_fleet, unauthorized, unknown_model


@dataclass(frozen=True, slots=True)
class Admission:
    """A request's leave to be sent to one fleet, and to no other that its model's name may pass to."""

    model: str
    fleet: str = ""
    key: str = field(default="", repr=False)

    def route(self, table: RoutingTable) -> ModelRoute:
        """Where it may be sent by this ``table``, which may be another than the one it was admitted by.

        Raises :class:`GatewayError`: 404, 503 where the name is another fleet's now, 401 where the key is not taken.
        """
        route = table.models.get(self.model)
        if route is None:
            raise unknown_model(self.model)
        if route.fleet != self.fleet:
            raise another_fleet(self.model)
        if route.key_digests is not None and not matches(self.key, route.key_digests):
            raise unauthorized()
        return route


def admit(table: RoutingTable, model: str, key: str = "") -> Admission:
    """The leave of a request that names ``model`` and brings ``key``; raises :class:`GatewayError` (404, 401)."""
    route = table.models.get(model)
    admission = Admission(model, route.fleet if route else "", key)
    admission.route(table)
    return admission
