"""Which fleet a request may be sent to, and for which tenant: its key against the keys of the fleet that it names."""

from dataclasses import dataclass, field

from paternoster_contract.access.identity import Identity, Lane
from paternoster_contract.access.keys import is_listed
from paternoster_contract.limits import MAX_PRIORITY
from paternoster_contract.routing import AdapterRoute, ModelRoute, RoutingTable
from paternoster_gateway.errors import (
    another_fleet,
    expired_key_error,
    model_needed,
    route_unread,
    unauthorized_error,
    unknown_model,
)
from paternoster_gateway.routing.decisions import Turn
from paternoster_http.shares import Party


@dataclass(frozen=True, slots=True)
class ClientAdmission:
    """The permission to send a request to one fleet, and to no other that its model's name may pass to."""

    model: str
    """The first of its model's names."""
    fleet: str = ""
    key_digest: str = field(default="", repr=False)
    identity: Identity | None = field(default=None, repr=False)
    """The identity of the key; None where the fleet needs no key."""
    peer: str = ""
    """What counts as the address of the client."""
    namespace: str = ""
    """Namespace of the fleet: what all fleets use is shared out by it."""
    name: str = ""
    """The name by which the request calls the model; empty if it names none, which every engine accepts."""
    adapter: str = ""
    """The name of the adapter (LoRA) that the request is for; empty for the model as it is."""
    lane: Lane = Lane.ONLINE

    @property
    def served_as(self) -> str:
        """The name that the engine's answers and cached texts have."""
        return self.adapter or self.model

    @property
    def sender(self) -> str:
        """The tenant or address that the request counts for where resources are shared, in its lane."""
        sender = self.peer if self.identity is None else self.identity.tenant
        return sender if self.lane is Lane.ONLINE else f"{self.lane.encode()}/{sender}"

    @property
    def party(self) -> Party:
        """Fleet and sender; a fleet without a uid goes by its model."""
        return self.fleet or self.model, self.sender

    def queue_turn(self, priority: int, size: int, deadline_seconds: float | None) -> Turn:
        """When a request is sent that wants ``priority``, within the classes that its key may ask for."""
        least, most, weight = 0, MAX_PRIORITY, None
        if self.identity is not None:
            least, most, weight = self.identity.min_priority, self.identity.max_priority, self.identity.weight
        return Turn(
            min(max(priority, least), most), 1.0 if weight is None else weight, size, deadline_seconds, self.lane
        )

    def route(self, table: RoutingTable, now: float) -> ModelRoute:
        """The row of ``table`` by which it may be sent ``now``; the table may be a later one than at its admission.

        ``now``: Unix seconds, since keys expire by the calendar.

        Raises :class:`GatewayError`: 404, 503 where the name is another fleet's now, 401 where the key is not accepted.
        Of an adapter that the key may not use: 404, as if there were none.
        """
        name = self.name or self.model
        first = table.first_names.get(name)
        if first is None:
            raise route_unread(name) if name in table.unread else unknown_model(name)
        route = table.models[first]
        if route.fleet != self.fleet:
            raise another_fleet(name)
        adapter = route.find_adapter(name)
        if adapter is not None and not may_use(adapter, self.key_digest):
            raise unknown_model(name)
        if route.key_digests is not None and not is_listed(self.key_digest, route.key_digests):
            raise unauthorized_error()
        identity = route.find_identity(self.key_digest)
        if identity is not None and identity.is_expired(now):
            raise expired_key_error()
        return route


def admit_request(
    table: RoutingTable,
    model: str,
    key_digest: str,
    now: float,
    *,
    peer: str = "",
    named: bool = True,
    lane: Lane = Lane.ONLINE,
) -> ClientAdmission:
    """Admit a request with the key of ``key_digest`` for ``model``, by any of its names; ``named``: its body has one.

    ``lane``: what its sender proved to be in.

    Raises :class:`GatewayError` (404, 401).
    """
    first = table.first_names.get(model, model)
    route = table.models.get(first)
    identity = route.find_identity(key_digest) if route else None
    fleet, namespace = (route.fleet, route.namespace) if route else ("", "")
    adapter = model if route and route.find_adapter(model) else ""
    name = model if named else ""
    admission = ClientAdmission(first, fleet, key_digest, identity, peer, namespace, name, adapter, lane)
    admission.route(table, now)
    return admission


def may_use(adapter: AdapterRoute, key_digest: str) -> bool:
    """Whether the key of ``key_digest``, where it opens the model, opens its adapter, too."""
    return adapter.key_digests is None or is_listed(key_digest, adapter.key_digests)


def opens_any_model(table: RoutingTable, key_digest: str) -> bool:
    """Whether the key of ``key_digest`` is one of some fleet's, or some model needs none."""
    return table.all_key_digests is None or key_digest in table.all_key_digests


def only_model(table: RoutingTable, key_digest: str, now: float) -> str:
    """The model of a request that names none: the only one that the key of ``key_digest`` opens.

    Raises :class:`GatewayError`: 401 where the key opens none, 400 where there is none, or a choice.
    """
    names = models_open_to(table, key_digest, now)
    if len(names) == 1:
        return names[0]
    if table.models and not names:
        raise unauthorized_error()
    raise model_needed(names)


def models_open_to(table: RoutingTable, key_digest: str, now: float) -> list[str]:
    """The models that the key of ``key_digest`` opens, by their first names."""
    names = []
    for name, route in table.models.items():
        if route.key_digests is not None:
            identity = route.identities.get(key_digest)
            if key_digest not in route.key_digests or (identity is not None and identity.is_expired(now)):
                continue
        names.append(name)
    return names
