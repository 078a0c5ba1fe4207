"""How many tokens a step holds: fewer while several tenants are served, so that none waits for another's long step."""

from collections import Counter

RECENT_STEPS = 256
"""After which a tenant that has no request any more is not expected back."""
LEAST_TOKENS = 16
"""That a step has for prompts, however few are computed in time."""


class StepBudget:
    """The live token budget, and a smaller one for steps that tenants share.

    A request that comes waits for the step under way, and one that decodes for each of them. Where all are one
    tenant's, a long step costs that one alone, and fewer tokens a step would cost throughput.
    """

    def __init__(self, live: int, *, by_tenant: bool = True) -> None:
        """``by_tenant``: whether the order is by tenant, so that steps of several are short."""
        self.live = live
        self._by_tenant = by_tenant
        self.shared: int | None = None
        """Tokens of a step that several share, by the time that they take; None before a prompt was timed."""
        self._requests: Counter[str] = Counter()
        """Number of requests of each tenant that has any."""
        self._left: dict[str, int] = {}
        """Step in which each other tenant had its last one; the latest last."""

    def add_request(self, tenant: str) -> None:
        """``tenant`` has one more request."""
        self._left.pop(tenant, None)
        self._requests[tenant] += 1

    def remove_request(self, tenant: str, step: int) -> None:
        """``tenant`` has one request less, in ``step``."""
        self._requests[tenant] -= 1
        if not self._requests[tenant]:
            del self._requests[tenant]
            self._left[tenant] = step

    def limit_tokens(self, step: int, num_running: int) -> int:
        """Return the most tokens of ``step``; each of the ``num_running`` sequences gets at least one."""
        if self.shared is None or not self._by_tenant or not self._is_shared(step):
            return max(self.live, num_running)
        return min(max(self.live, num_running), max(self.shared, num_running + LEAST_TOKENS))

    def limit_lower_lane(self, given: int, left: int, num_running: int) -> int:
        """Return the tokens that ``num_running`` sequences of a lower lane may have in a step.

        The lanes above were ``given`` tokens, and ``left`` are left. Each of their requests waits for the step, so it
        gets no longer than one that tenants share; without them, each of the sequences may go on.
        """
        if self.shared is None:
            return left
        bound = self.shared if given else max(self.shared, num_running + LEAST_TOKENS)
        return max(0, min(left, bound - given))

    def _is_shared(self, step: int) -> bool:
        while self._left and step - next(iter(self._left.values())) > RECENT_STEPS:
            del self._left[next(iter(self._left))]
        return len(self._requests) + len(self._left) > 1
