"""The party of a request whose model is not read yet: the one that its key was admitted as last."""

from collections import OrderedDict

from paternoster_contract.access.keys import digest
from paternoster_contract.routing import RoutingTable
from paternoster_gateway.admission import Admission
from paternoster_http.shares import Party

MOST_REMEMBERED = 4096
"""Keys; the one that came longest ago is forgotten."""


class KnownParties:
    """By a key's digest; a key that its fleet does not take any more counts for nothing."""

    def __init__(self) -> None:
        self._parties: OrderedDict[str, tuple[str, Party]] = OrderedDict()
        """With the model that it was admitted for."""

    def remember(self, admission: Admission) -> None:
        """A request was admitted, and may have come with a key."""
        if admission.identity is not None:
            known = digest(admission.key)
            self._parties[known] = admission.model, admission.party
            self._parties.move_to_end(known)
            if len(self._parties) > MOST_REMEMBERED:
                self._parties.popitem(last=False)

    def party_of(self, key: str, table: RoutingTable) -> Party | None:
        """None for a key that was not admitted yet, or is not taken now."""
        model, party = self._parties.get(known := digest(key), ("", None)) if key else ("", None)
        route = table.models.get(model)
        if party is None or route is None or party[0] != (route.fleet or model):
            return None
        return party if known in (route.key_digests or ()) else None
