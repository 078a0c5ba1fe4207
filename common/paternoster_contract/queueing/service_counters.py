"""Which tenant was served least, in tokens over its weight: the order of fair shares."""

from paternoster_contract.queueing.least_served import LeastServed

PROMPT_TOKEN_COST = 1.0
OUTPUT_TOKEN_COST = 2.0
"""An output token takes a row in every step; the weights of the VTC paper and of common price lists."""

MAX_COUNTERS = 4096
"""Tenants remembered besides twice those that wait or run."""


class ServiceCounters:
    """Weighted virtual token counters (VTC, Sheng et al., OSDI '24): the tenant with the least goes first.

    A tenant's counter grows by what it is served over its weight. A tenant that comes back is lifted to the least
    counter of those that wait, or run where none waits: idle time earns no credit.
    """

    def __init__(self) -> None:
        self.by_tenant: dict[str, float] = {}
        """Service of each tenant so far, in token costs over its weight."""
        self._waiting = LeastServed(self.by_tenant)
        self._running = LeastServed(self.by_tenant)
        self._last_to_leave: str | None = None

    def __getitem__(self, tenant: str) -> float:
        return self.by_tenant.get(tenant, 0.0)

    def add(self, tenant: str, cost: float, weight: float) -> None:
        """Count what ``tenant`` is served, or was not served after all where ``cost`` is below 0."""
        self.by_tenant[tenant] = self.by_tenant.get(tenant, 0.0) + cost / weight
        if cost < 0:
            self._waiting.lower_bound(tenant)
            self._running.lower_bound(tenant)

    def begin_waiting(self, tenant: str) -> None:
        """The first request of ``tenant`` waits: its counter is lifted."""
        self._lift_counter(tenant)
        self._waiting.add(tenant)

    def end_waiting(self, tenant: str) -> None:
        """No request of ``tenant`` waits any more."""
        self._waiting.discard(tenant)
        self._last_to_leave = tenant

    def begin_running(self, tenant: str) -> None:
        """The first request of ``tenant`` runs."""
        self.by_tenant.setdefault(tenant, 0.0)
        self._running.add(tenant)

    def end_running(self, tenant: str) -> None:
        """No request of ``tenant`` runs any more."""
        self._running.discard(tenant)

    def _lift_counter(self, tenant: str) -> None:
        """Lift the counter of a tenant that comes, and of which no request waits."""
        active = self._waiting or self._running
        floor = active.find_least() if active else self[self._last_to_leave or ""]
        if len(self.by_tenant) >= MAX_COUNTERS + 2 * (len(self._waiting) + len(self._running)):
            self._forget_idle(floor)
        self.by_tenant[tenant] = max(self[tenant], floor)

    def _forget_idle(self, floor: float) -> None:
        """Forget counters that a return would lift anyway, and of the others all but those that were served most."""
        idle = [
            tenant
            for tenant in self.by_tenant
            if tenant not in self._waiting and tenant not in self._running and tenant != self._last_to_leave
        ]
        owing = sorted((tenant for tenant in idle if self.by_tenant[tenant] > floor), key=self.by_tenant.__getitem__)
        for tenant in set(idle).difference(owing[-(MAX_COUNTERS // 2) :]):
            del self.by_tenant[tenant]
