"""Which replica gets a request now: one that is no worse for it than the others, and has a place for it."""

from collections import Counter
from collections.abc import Collection

from paternoster_contract.routing import ModelRoute, Replica
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.prefix_routing import PrefixRouting
from paternoster_gateway.routing.replica_states import ReplicaStates


def address_of_replica(url: str) -> str:
    """Host and port of the replica at ``url``."""
    return url.partition("://")[2].partition("/")[0]


class ReplicaPicker:
    """Counts the places that are used at each replica, and picks among those that have a free one.

    A row of the routing table bounds the places of this gateway at a replica, or does not; ejected and hung replicas
    get nothing.
    """

    def __init__(self, gateway: str, prefixes: PrefixRouting) -> None:
        """``gateway``: its instance, by which rows name its part of a bound."""
        self._gateway = gateway
        self.prefixes = prefixes
        self.states = ReplicaStates()
        self.in_flight: Counter[str] = Counter()
        """Places that are used, by replica URL."""
        self._ready: dict[str, ReadyReplicas] = {}
        """Ready replicas by model, of the row that was routed by last."""
        self._turn = 0

    def retain_only(self, models: Collection[str]) -> None:
        """Forget the rows of all models but ``models``."""
        self._ready = {model: ready for model, ready in self._ready.items() if model in models}

    def find_ready(self, model: str, row: ModelRoute) -> ReadyReplicas:
        """The replicas of ``row`` that accept requests."""
        ready = self._ready.get(model)
        if ready is None or ready.route is not row:
            ready = self._ready[model] = ReadyReplicas(row, self.in_flight)
        return ready

    def find_bound(self, row: ModelRoute) -> int | None:
        """Places of this gateway at each replica of ``row``; None where there is no bound."""
        return row.most_in_flight(self._gateway)

    def has_place(self, row: ModelRoute, url: str, spare: int = 0) -> bool:
        """Whether the replica at ``url``, one of ``row``, has a free place, with ``spare`` places beyond the bound."""
        bound = self.find_bound(row)
        return bound is None or self.in_flight[url] < bound + spare

    def count_place(self, url: str, difference: int) -> None:
        """Count ``difference`` more used places at ``url``."""
        self.in_flight[url] += difference
        if not self.in_flight[url]:
            del self.in_flight[url]
        for ready in self._ready.values():
            ready.add_in_flight(url, difference)

    def find_avoided(self, now: float) -> Collection[str]:
        """URLs that get nothing now."""
        ejected, hung = self.states.find_ejected(now), self.states.hung
        return {*ejected, *hung} if ejected or hung else ()

    def find_unserving(self, request: RoutedRequest, ready: ReadyReplicas) -> Collection[str]:
        """URLs of replicas of ``ready`` that may not get ``request``, whatever their load."""
        without_name, subset = ready.without_name(request.name), request.subset
        if subset is None:
            return without_name
        return {*without_name, *(url for url in ready.urls if address_of_replica(url) not in subset)}

    def pick_preferred(
        self, request: RoutedRequest, ready: ReadyReplicas, avoid: Collection[str], now: float, spare: int = 0
    ) -> Replica | None:
        """Pick a replica that refused no request as full a moment ago, where there is one."""
        full = self.states.find_full(now)
        other = self.pick(request, ready, {*avoid, *full}, now, spare) if full else None
        return other or self.pick(request, ready, avoid, now, spare)

    def pick(
        self, request: RoutedRequest, ready: ReadyReplicas, avoid: Collection[str], now: float, spare: int = 0
    ) -> Replica | None:
        """A replica with a place outside ``avoid``, by what it has cached, or by load; None where there is none.

        ``spare``: places of each replica beyond the bound that ``request`` may get.
        """
        request.pick = None
        replica = self.pick_by_load(ready, avoid, now, spare)
        if replica is None or request.prompt is None or len(ready) < 2:
            return replica
        avoided = {*avoid, *self.find_avoided(now)}
        if (bound := self.find_bound(ready.route)) is not None:
            avoided.update(url for url in ready.urls if self.in_flight[url] >= bound + spare)
        best = self.prefixes.pick(request.model, request.prompt, ready, avoided, self.in_flight, now)
        if best is not None:
            replica, request.pick = best
        return replica

    def pick_by_load(self, ready: ReadyReplicas, avoid: Collection[str], now: float, spare: int = 0) -> Replica | None:
        """The replica with the fewest requests in flight that has a place, outside ``avoid``."""
        self._turn += 1
        avoided = self.find_avoided(now)
        replica = ready.pick(avoid={*avoid, *avoided} if avoided else avoid, turn=self._turn)
        # The bound is the same for all: where the least loaded has no place, none has.
        return replica if replica is not None and self.has_place(ready.route, replica.url, spare) else None
