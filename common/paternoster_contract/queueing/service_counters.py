"""Which tenant was served least, in tokens over its weight: the order of fair shares."""

from collections.abc import Collection

PROMPT_TOKEN_COST = 1.0
OUTPUT_TOKEN_COST = 2.0
"""An output token takes a row in every step; the weights of the VTC paper and of common price lists."""

MAX_COUNTERS = 4096
"""Tenants remembered besides those that wait or run."""


class ServiceCounters:
    """Weighted virtual token counters (VTC, Sheng et al., OSDI '24): the tenant with the least goes first.

    A tenant's counter grows by what it is served over its weight. A tenant that comes back is lifted to the least
    counter of those that wait, or run where none waits: idle time earns no credit.
    """

    def __init__(self) -> None:
        self.by_tenant: dict[str, float] = {}
        """Service of each tenant so far, in token costs over its weight."""
        self._last_to_leave: str | None = None

    def __getitem__(self, tenant: str) -> float:
        return self.by_tenant.get(tenant, 0.0)

    def add(self, tenant: str, cost: float, weight: float) -> None:
        """Count what ``tenant`` is served."""
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0.0) + cost / weight

    def begin_waiting(self, tenant: str, waiting: Collection[str], running: Collection[str]) -> None:
        """Lift the counter of a tenant none of whose requests waited; ``waiting`` and ``running`` are the others."""
        active = waiting or running
        floor = min(self[other] for other in active) if active else self[self._last_to_leave or ""]
        if len(self.by_tenant) >= MAX_COUNTERS:
            self._forget_idle(floor, waiting, running)
        self.by_tenant[tenant] = max(self[tenant], floor)

    def end_waiting(self, tenant: str) -> None:
        """No request of ``tenant`` waits any more."""
        self._last_to_leave = tenant

    def _forget_idle(self, floor: float, waiting: Collection[str], running: Collection[str]) -> None:
        """Forget counters that a return would lift anyway; where they are few, the least served half of all."""
        absent = {t: c for t, c in self.by_tenant.items() if t not in waiting and c > floor}
        if len(absent) > MAX_COUNTERS // 2:
            absent = dict(sorted(absent.items(), key=lambda item: item[1])[-(MAX_COUNTERS // 2) :])
        active = {*waiting, *running, self._last_to_leave}
        self.by_tenant = {t: c for t, c in self.by_tenant.items() if t in active} | absent
