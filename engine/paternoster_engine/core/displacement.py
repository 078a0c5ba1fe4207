"""Whom a waiting request may push out."""

from collections.abc import Sequence

from paternoster_engine.core.kv_cache import KVCache
from paternoster_engine.core.policies.admission import AdmissionPolicy
from paternoster_engine.core.policies.queues import RequestQueue
from paternoster_engine.core.request import Request


class Displacement:
    """All or nothing: nobody is preempted unless that lets the request in, and no more than it takes."""

    def __init__(self, queue: RequestQueue, admission: AdmissionPolicy, kv: KVCache) -> None:
        self._queue = queue
        self._admission = admission
        self._kv = kv

    def victims_for(
        self, request: Request, prefix: list[int], running: Sequence[Request], missing: int
    ) -> list[Request]:
        """Running requests to preempt so that ``request``, sharing the blocks ``prefix``, can take their place.

        The least important first, of equals those with the least computed; empty when it outranks too few. ``missing``:
        places under the live cap that they must leave besides the memory; a search leaves one for each beam.
        """
        if not self._queue.displaces:
            return []
        lower = [other for other in running if other.leader is other and self._queue.outranks(request, other)]
        lower.sort(key=lambda other: (-other.priority, other.num_computed))

        def enough(victims: Sequence[Request]) -> bool:
            if sum(victim.width for victim in victims) < missing:
                return False
            return self._fits(victims, request, prefix, running)

        if not lower or not enough(lower):
            return []
        return next(lower[:count] for count in range(1, len(lower) + 1) if enough(lower[:count]))

    def _fits(
        self, victims: Sequence[Request], request: Request, prefix: list[int], running: Sequence[Request]
    ) -> bool:
        pool = self._kv.pool
        freed = pool.freed_by(sequence.block_ids for victim in victims for sequence in victim.sequences)
        new = self._kv.new_blocks(request, prefix) + len(freed.intersection(prefix))
        rest = [other for other in running if other.leader not in victims]
        return self._admission.admits(request, rest, new, pool.num_available + len(freed))
