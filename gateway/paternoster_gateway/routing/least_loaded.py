"""Which replica gets a request: pure."""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping

from paternoster_contract.routing import ModelRoute, Replica


class LeastLoaded:
    """Replicas by requests in flight, kept up to date as they come and go: logarithmic in the replicas, not linear.

    Ready replicas only, each by a name that no other has; equals are in order of name.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, int] = {}
        self._levels: dict[int, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._in_flight

    def add(self, name: str, in_flight: int = 0) -> None:
        """A replica is ready from now on."""
        self._in_flight[name] = in_flight
        insort(self._levels.setdefault(in_flight, []), name)

    def remove(self, name: str) -> None:
        """It takes no more; nothing happens where it is unknown."""
        count = self._in_flight.pop(name, None)
        if count is not None:
            self._leave(count, name)

    def change(self, name: str, difference: int) -> None:
        """So many requests more are in flight there; nothing happens where it is unknown."""
        count = self._in_flight.get(name)
        if count is None:
            return
        self._leave(count, name)
        self._in_flight[name] = count + difference
        insort(self._levels.setdefault(count + difference, []), name)

    def pick(self, *, avoid: Collection[str] = (), turn: int = 0) -> str | None:
        """The name with the fewest requests in flight; None when there is none outside ``avoid``.

        Equals take turns: ``turn`` is any number that grows.
        """
        if not avoid:
            if not self._levels:
                return None
            least = self._levels[min(self._levels)]
            return least[turn % len(least)]
        for level in sorted(self._levels):
            least = [name for name in self._levels[level] if name not in avoid]
            if least:
                return least[turn % len(least)]
        return None

    def _leave(self, count: int, name: str) -> None:
        level = self._levels[count]
        del level[bisect_left(level, name)]
        if not level:
            del self._levels[count]


class ReadyReplicas:
    """The replicas of ``route`` that take requests, kept by load: made anew when the route is another."""

    def __init__(self, route: ModelRoute, in_flight: Mapping[str, int]) -> None:
        """``in_flight`` counts by replica URL; tell every later change of it to :meth:`change`."""
        self.route = route
        self._by_url = {replica.url: replica for replica in route.replicas if replica.ready}
        self._by_load = LeastLoaded()
        for url in self._by_url:
            self._by_load.add(url, in_flight.get(url, 0))
        self._unserved: dict[str, set[str]] = {}
        """URLs of replicas by names that they were started without; empty but for the time of a rollout."""
        for replica in self._by_url.values():
            for name in replica.unserved_names:
                self._unserved.setdefault(name, set()).add(replica.url)

    def __len__(self) -> int:
        return len(self._by_url)

    def without(self, name: str) -> Collection[str]:
        """URLs of replicas that do not know ``name`` yet: they would answer 404."""
        return self._unserved.get(name, ())

    def change(self, url: str, difference: int) -> None:
        """So many requests more are in flight at a replica; nothing happens where it is none of these."""
        self._by_load.change(url, difference)

    def pick(self, *, avoid: Collection[str] = (), turn: int = 0) -> Replica | None:
        """As :meth:`LeastLoaded.pick`, the replica; ``avoid`` has URLs."""
        url = self._by_load.pick(avoid=avoid, turn=turn)
        return None if url is None else self._by_url[url]
