"""Which replica gets a request: pure."""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping

from paternoster_contract.routing import ModelRoute, Replica


class LeastLoaded:
    """Ready replicas by requests in flight; a change and a pick take logarithmic time in the replicas.

    Each has a name that no other has; equals are in order of name.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, int] = {}
        self._levels: dict[int, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._in_flight

    def add(self, name: str, in_flight: int = 0) -> None:
        """Add a replica that has become ready."""
        self._in_flight[name] = in_flight
        insort(self._levels.setdefault(in_flight, []), name)

    def remove(self, name: str) -> None:
        """Remove a replica; one that was not added is ignored."""
        count = self._in_flight.pop(name, None)
        if count is not None:
            self._remove_from_level(count, name)

    def add_in_flight(self, name: str, difference: int) -> None:
        """Change the requests in flight at a replica by ``difference``; one that was not added is ignored."""
        count = self._in_flight.get(name)
        if count is None:
            return
        self._remove_from_level(count, name)
        self._in_flight[name] = count + difference
        insort(self._levels.setdefault(count + difference, []), name)

    def pick(self, *, avoid: Collection[str] = (), turn: int = 0) -> str | None:
        """The name of the replica with the fewest requests in flight; None if there is none outside ``avoid``.

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

    def _remove_from_level(self, count: int, name: str) -> None:
        level = self._levels[count]
        del level[bisect_left(level, name)]
        if not level:
            del self._levels[count]


class ReadyReplicas:
    """The replicas of ``route`` that accept requests, by load; another route needs another object."""

    def __init__(self, route: ModelRoute, in_flight: Mapping[str, int]) -> None:
        """``in_flight``: counts by replica URL; :meth:`add_in_flight` follows its later changes."""
        self.route = route
        self._by_url = {replica.url: replica for replica in route.replicas if replica.ready}
        self._by_load = LeastLoaded()
        for url in self._by_url:
            self._by_load.add(url, in_flight.get(url, 0))
        self._unserved: dict[str, set[str]] = {}
        """URLs of replicas by names that they do not serve: started without them, or adapters not loaded."""
        for replica in self._by_url.values():
            for name in replica.unserved_names:
                self._unserved.setdefault(name, set()).add(replica.url)

    def __len__(self) -> int:
        return len(self._by_url)

    def find(self, url: str) -> Replica | None:
        """The replica at ``url``; None where it is not ready."""
        return self._by_url.get(url)

    @property
    def urls(self) -> Collection[str]:
        """URLs of all of them."""
        return self._by_url.keys()

    def get_replica(self, url: str) -> Replica:
        """The replica at ``url``, which is one of them."""
        return self._by_url[url]

    def without_name(self, name: str) -> Collection[str]:
        """URLs of replicas that do not serve ``name`` yet: they would answer 404."""
        return self._unserved.get(name, ())

    def lack_name(self, name: str) -> bool:
        """Whether there are some, and none of them serves ``name``."""
        return bool(self._by_url) and len(self.without_name(name)) == len(self._by_url)

    def add_in_flight(self, url: str, difference: int) -> None:
        """Change the requests in flight at a replica by ``difference``; a replica that is not ready is ignored."""
        self._by_load.add_in_flight(url, difference)

    def pick(self, *, avoid: Collection[str] = (), turn: int = 0) -> Replica | None:
        """Pick a replica as :meth:`LeastLoaded.pick` does; ``avoid`` has URLs."""
        url = self._by_load.pick(avoid=avoid, turn=turn)
        return None if url is None else self._by_url[url]
