"""Places under the live cap: who takes how many, and whether there are some left."""

from collections.abc import Sequence

from paternoster_engine.core.beam_group import BeamGroup
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request


class Places:
    """A place is one running sequence. A search takes those of all its beams as soon as it boards."""

    def __init__(self, config: SchedulerConfig, running: Sequence[Request], live_cap: int | None) -> None:
        """``running``: the scheduler's own list, which it changes."""
        self._config = config
        self._running = running
        self._live_cap = config.max_num_seqs if live_cap is None else self._checked(live_cap)
        self.promised: set[BeamGroup] = set()
        """Searches that run as one sequence and will be several."""

    @property
    def live_cap(self) -> int:
        return self._live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        self._live_cap = self._checked(cap)

    def missing(self, request: Request) -> int:
        """Places that others have to leave before the request may board, but no more than it would take."""
        if not self._running:
            return 0
        taken = len(self._running) + sum(group.leader.places - 1 for group in self.promised)
        return min(max(0, taken + request.places - self._live_cap), request.places)

    def only_reserved_left(self, request: Request) -> bool:
        """Whether all the places that are left are for requests of a class above this one's."""
        reserved = self._config.reserved_slots
        if reserved == 0 or request.priority < 0:
            return False
        ordinary = sum(other.places for other in self._running if other.priority >= 0)
        return ordinary > 0 and ordinary + request.places > self._live_cap - reserved

    def tenant_is_full(self, request: Request) -> bool:
        """Whether the request's tenant runs as much as it may; one that runs nothing never is."""
        limits = request.limits
        most = self._config.max_running_per_tenant if limits is None else limits.max_running
        if not most:
            return False
        taken = sum(other.places for other in self._running if other.tenant == request.tenant)
        return taken > 0 and taken + request.places > most

    def _checked(self, cap: int) -> int:
        if not 1 <= cap <= self._config.max_num_seqs:
            raise ValueError(f"live_cap is {cap}: must be 1 to {self._config.max_num_seqs}, the capacity")
        return cap
