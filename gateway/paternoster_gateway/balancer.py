"""Which replica a request goes to: in-flight counts, ejected replicas, and requests held until one is ready."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.admission import Admission
from paternoster_gateway.errors import unavailable
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.limits import EJECTION_SECONDS
from paternoster_http.shares import Shares

CHECK_SECONDS = 10.0
"""Between two looks at a held request's key and fleet, while no replica of it is ready."""
FULL_SECONDS = 1.0
"""Time for which requests go to other replicas, where there are any, than to one that refused a request as full."""

MOST_REFUSED = 10_000
"""Refused requests of a fleet that count as demand until they may come again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """One request that waits for a replica."""

    sender: str
    future: asyncio.Future[None]


class Balancer:
    """Hands out replicas for requests.

    A replica is known by its URL: pods of two namespaces may have one name. Who waits is known by model and fleet: a
    model's name may pass to another fleet.
    """

    def __init__(
        self,
        table: Callable[[], RoutingTable],
        clock: Callable[[], float] = time.monotonic,
        hung: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """``hung``: URLs of replicas that get nothing new."""
        self.in_flight: Counter[str] = Counter()
        """Requests by replica URL."""
        self._table = table
        self._clock = clock
        self._hung = hung
        self._ejected_until: dict[str, float] = {}
        self._full: dict[str, float] = {}
        self._held: dict[tuple[str, str], dict[_Held, None]] = {}
        """By model and fleet, as ``_refused``."""
        self._refused: dict[tuple[str, str], deque[float]] = {}
        """When each request refused for want of a replica may come again."""
        self._ready: dict[str, ReadyReplicas] = {}
        """By model, of the route that was last asked for."""
        self._turn = 0

    def held(self, model: str) -> int:
        return len(self._held.get(self._now(model), ()))

    def refused(self, model: str) -> int:
        """Requests that found no replica and were told to come again later: until then they are demand."""
        again = self._refused.get(self._now(model), deque())
        while again and again[0] <= self._clock():
            again.popleft()
        return len(again)

    def eject(self, replica: Replica) -> None:
        """Send ``replica``, which could not be reached, nothing for :data:`EJECTION_SECONDS`."""
        self._ejected_until[replica.url] = self._clock() + EJECTION_SECONDS

    def mark_full(self, replica: Replica) -> None:
        """Prefer other replicas for :data:`FULL_SECONDS`: this one refused a request."""
        self._full[replica.url] = self._clock() + FULL_SECONDS

    def pick_for_retry(self, admission: Admission, tried: Collection[str]) -> Replica | None:
        """A ready replica outside ``tried`` (URLs) that did not refuse a request a moment ago; None without waiting.

        Raises what :meth:`Admission.route` raises.
        """
        ready = self._replicas(admission.model, admission.route(self._table()))
        return self._pick_outside(ready, {*tried, *ready.without(admission.name), *self._unexpired(self._full)})

    async def acquire(self, admission: Admission, tried: Collection[str] = ()) -> Replica:
        """A replica outside ``tried`` (URLs) for one request, held until one is ready.

        Raises :class:`GatewayError`: 503, and what :meth:`Admission.route` raises, at whatever moment.
        """
        deadline: float | None = None
        while True:
            route = admission.route(self._table())
            ready = self._replicas(admission.model, route)
            unaware = ready.without(admission.name)
            replica = self._pick(ready, {*tried, *unaware})
            if replica is not None:
                return replica
            if not route.hold and ready.pick(avoid={*unaware, *self._hung()}) is None:
                self._refuse(admission, route)
            if deadline is None:
                deadline = self._clock() + route.hold_timeout_seconds
            await self._hold(admission, route, deadline)
            tried = ()

    @contextmanager
    def count_in_flight(self, replica: Replica) -> Iterator[None]:
        """Count one more request in flight at ``replica`` within the block."""
        self._change(replica.url, 1)
        try:
            yield
        finally:
            self._change(replica.url, -1)
            if not self.in_flight[replica.url]:
                del self.in_flight[replica.url]

    def release_held(self) -> None:
        """The table changed: let held requests look again, first come first served."""
        models = self._table().models
        self._ready = {model: ready for model, ready in self._ready.items() if model in models}
        for place in list(self._refused):
            if self._served_or_gone(*place):
                del self._refused[place]  # whoever comes again is served, and counted there
        for place, waiting in self._held.items():
            if self._served_or_gone(*place):
                for held in waiting:
                    if not held.future.done():
                        held.future.set_result(None)

    def _served_or_gone(self, model: str, fleet: str) -> bool:
        route = self._table().models.get(model)
        return route is None or route.fleet != fleet or any(replica.ready for replica in route.replicas)

    def _now(self, model: str) -> tuple[str, str]:
        """The model and the fleet that has its name now."""
        route = self._table().models.get(model)
        return model, route.fleet if route else ""

    def _replicas(self, model: str, route: ModelRoute) -> ReadyReplicas:
        ready = self._ready.get(model)
        if ready is None or ready.route is not route:
            ready = self._ready[model] = ReadyReplicas(route, self.in_flight)
        return ready

    def _pick(self, ready: ReadyReplicas, tried: Collection[str]) -> Replica | None:
        full = self._unexpired(self._full)
        spare = self._pick_outside(ready, {*tried, *full}) if full else None
        return spare or self._pick_outside(ready, tried)

    def _pick_outside(self, ready: ReadyReplicas, avoid: Collection[str]) -> Replica | None:
        self._turn += 1
        return ready.pick(avoid={*avoid, *self._unexpired(self._ejected_until), *self._hung()}, turn=self._turn)

    def _unexpired(self, until: dict[str, float]) -> Collection[str]:
        """The URLs whose time has not passed; the others are removed."""
        now = self._clock()
        for url in [url for url, end in until.items() if end <= now]:
            del until[url]
        return until.keys()

    def _change(self, url: str, difference: int) -> None:
        self.in_flight[url] += difference
        for ready in self._ready.values():
            ready.change(url, difference)

    def _refuse(self, admission: Admission, route: ModelRoute) -> NoReturn:
        """Say when to come again, and count the request as demand until then."""
        model = admission.name or admission.model
        again = self._refused.setdefault(
            (admission.model, admission.fleet), deque(maxlen=max(1, min(route.max_held, MOST_REFUSED)))
        )
        again.append(self._clock() + route.retry_after_seconds)
        raise unavailable(
            f"No replica of `{model}` is ready; one is being started.", math.ceil(route.retry_after_seconds)
        )

    async def _hold(self, admission: Admission, route: ModelRoute, deadline: float) -> None:
        model, place = admission.name or admission.model, (admission.model, admission.fleet)
        waiting = self._held.get(place, {})
        if len(waiting) >= route.max_held:
            _make_room(waiting, admission)
        left = deadline - self._clock()
        if left <= 0:
            raise unavailable(f"No replica of `{model}` became ready within {route.hold_timeout_seconds:g} s.")
        held = _Held(admission.sender, asyncio.get_running_loop().create_future())
        waiting[held] = None
        self._held[place] = waiting
        try:
            # Ejected replicas return without a change of the table; without them, only the key may expire.
            ejected = any(replica.ready for replica in route.replicas)
            async with asyncio.timeout(min(left, EJECTION_SECONDS if ejected else CHECK_SECONDS)):
                await held.future
        except TimeoutError:
            return
        finally:
            waiting.pop(held, None)
            if not waiting:
                self._held.pop(place, None)


def _make_room(waiting: dict[_Held, None], admission: Admission) -> None:
    """All places of the fleet are taken: the latest request of the sender that has most of them gives way.

    Raises :class:`GatewayError` (503) where the sender of ``admission`` has as many as others.
    """
    full = unavailable(f"No replica of `{admission.model}` is ready, and {len(waiting)} requests already wait for one.")
    shares, party = Shares(len(waiting), reserve=0), (admission.sender,)
    for each in waiting:
        shares.add((each.sender,), 1)
    holder = next((each for each in shares.larger(party) if shares.gives_way(each, party, 1, 1)), None)
    if holder is None:
        raise full
    latest = next(each for each in reversed(waiting) if (each.sender,) == holder)
    del waiting[latest]
    if not latest.future.done():
        latest.future.set_exception(full)
