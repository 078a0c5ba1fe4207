"""The party that a request counts for before its model is read: the one that its key was admitted as last."""

from paternoster_contract.access.identity import Lane
from paternoster_contract.routing import RoutingTable
from paternoster_contract.shares.places import SharedPlaces
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_http.shares import Party

MOST_REMEMBERED = 4096
"""Most keys that are remembered, shared out by namespace; the one whose last request is oldest is removed first."""


class KnownParties:
    """Parties by the digests of keys; a key that its fleet no longer accepts has none."""

    def __init__(self) -> None:
        self._parties: dict[str, tuple[str, Party]] = {}
        """Each with the model that it was admitted for."""
        self._places = SharedPlaces[str](MOST_REMEMBERED)

    def add_party(self, admission: ClientAdmission) -> None:
        """Record the party of an admitted request, if it came with a client's key."""
        if admission.identity is not None and admission.lane is Lane.ONLINE:
            self._parties[admission.key_digest] = admission.model, admission.party
            if (evicted := self._places.take_place(admission.key_digest, admission.namespace)) is not None:
                del self._parties[evicted]

    def party_of(self, key_digest: str, table: RoutingTable) -> Party | None:
        """The party of a key; None if it was not admitted yet, or its fleet does not accept it now."""
        model, party = self._parties.get(key_digest, ("", None))
        route = table.models.get(model)
        if party is None or route is None or party[0] != (route.fleet or model):
            return None
        return party if key_digest in (route.key_digests or ()) else None
