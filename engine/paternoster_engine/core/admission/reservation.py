"""What an admission must leave: slots under the live cap, and memory counted in KV blocks."""

import math
from collections.abc import Sequence
from typing import Protocol

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request


class Slots:
    """One slot is one running sequence under the live cap. A request takes those of all its sequences at once.

    A lane has the slots that those above it leave; its sequences beyond them keep their blocks and wait.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        running: Sequence[Request],
        live_cap: int | None,
        above: "Sequence[Slots]" = (),
    ) -> None:
        """``running``: the lane's own list, which it changes. ``above``: slots of the lanes before it."""
        self._capacity = config.max_num_seqs
        self._reserved = config.reserved_slots
        self._max_running = config.max_running_per_tenant
        self._running = running
        self._above = above
        self._live_cap = config.max_num_seqs if live_cap is None else self._check_live_cap(live_cap)
        self.promised: set[Request] = set()
        """Requests that run as one sequence and will be several."""

    @property
    def live_cap(self) -> int:
        return self._live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        self._live_cap = self._check_live_cap(cap)

    @property
    def num_taken(self) -> int:
        return len(self._running) + sum(request.slots - 1 for request in self.promised)

    @property
    def num_left(self) -> int:
        """Slots that the lanes above leave; below zero where the live cap was lowered beneath what runs there."""
        return self._live_cap - sum(slots.num_taken for slots in self._above) if self._above else self._live_cap

    @property
    def num_free(self) -> int:
        """Below zero where fewer slots are left than run."""
        return self.num_left - self.num_taken

    def count_missing(self, request: Request) -> int:
        """Slots that others have to leave before the request may run, but no more than it would take."""
        if not self._running and not any(slots.num_taken for slots in self._above):
            return 0
        return min(max(0, request.slots - self.num_free), request.slots)

    def only_reserved_left(self, request: Request) -> bool:
        """Whether all the slots that are left are for requests of a class above this one's."""
        if self._reserved == 0 or request.spec.priority < 0:
            return False
        ordinary = sum(other.slots for other in self._running if other.spec.priority >= 0)
        return ordinary > 0 and ordinary + request.slots > self._live_cap - self._reserved

    def tenant_is_full(self, request: Request) -> bool:
        """Whether the request's tenant runs as much as it may; one that runs nothing never is."""
        limits = request.spec.limits
        most = self._max_running if limits is None else limits.max_running
        if not most:
            return False
        num_taken = sum(other.slots for other in self._running if other.spec.tenant == request.spec.tenant)
        return num_taken > 0 and num_taken + request.slots > most

    def _check_live_cap(self, cap: int) -> int:
        if not 1 <= cap <= self._capacity:
            raise ValueError(f"live_cap is {cap}: must be 1 to {self._capacity}, the capacity")
        return cap


class Reservation(Protocol):
    """Decides whether a request may join ``running``.

    ``new`` blocks, of ``available`` ones, would be taken for the tokens it has now, and for all its sequences.
    """

    def can_admit(self, request: Request, running: Sequence[Request], new: int, available: int) -> bool: ...


class GreedyReservation:
    """Room for the known tokens is enough, if a watermark is left for those that run already."""

    def __init__(self, watermark: int) -> None:
        self._watermark = watermark

    def can_admit(self, request: Request, running: Sequence[Request], new: int, available: int) -> bool:
        return new + (self._watermark if running else 0) <= available


class NoEvictReservation:
    """The largest number of blocks held at any later step fits, since the short ones leave before the long ones peak.

    LightLLM's future peak, made a bound that holds on any trace: a sequence that decodes grows by one token a step
    and leaves after as many steps as it has tokens left, later by the steps that the token budget can keep it back
    with its prompt, as all other prompts may be computed before it. Blocks shared by several are counted for each, but
    for those that all sequences of a request share.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._groups = KVGroups(config)
        self._block_size = config.block_size
        self._rows = config.num_blocks // self._groups.count
        """That the pool holds for certain."""
        self._num_blocks = config.num_blocks
        self._budget = config.max_batched_tokens
        self._prefill_first = config.prefill_first
        self._pauses = config.pause_lower_classes
        # A step planned while another one runs does not see the requests that end with that one.
        self._lag = 1 if config.overlap else 0

    def can_admit(self, request: Request, running: Sequence[Request], new: int, available: int) -> bool:
        """``running`` in order of admission."""
        requests = _list_leaders([*running, request])
        leaving = sorted(zip(self._last_steps(requests), requests, strict=True), key=lambda pair: -pair[0])
        tokens = sequences = 0
        for count, (step, other) in enumerate(leaving, start=1):
            tokens += other.width * _count_known(other)
            sequences += other.width
            # Most steps are far from the limit; only those near it are counted block by block.
            if tokens + sequences * (step + self._block_size - 1) <= self._rows * self._block_size:
                continue
            if self._blocks_at(step, [request for _, request in leaving[:count]]) > self._num_blocks:
                return False
        return True

    def _blocks_at(self, step: float, holders: Sequence[Request]) -> int:
        return sum(
            self._groups.count_most_blocks(request, int(min(_count_known(request) + step, request.most_computed)))
            for request in holders
        )

    def _last_steps(self, running: Sequence[Request]) -> list[float]:
        """The last step at which each can still hold blocks; the step being planned is 0.

        With prefill first all decode together or none does, so only steps that decode are counted.
        """
        if self._pauses:
            # A later request may pause any of them while others grow.
            return [math.inf] * len(running)
        if self._prefill_first:
            together = sum(r.width for r in running) <= self._budget
            return [r.most_computed + 1 - _count_known(r) + self._lag if together else math.inf for r in running]
        ends: list[float] = []
        width = 0
        work, widest = sum(map(_count_uncomputed, running)), sum(request.width for request in running)
        for request in running:
            # The sequences of a request get longer together, so the last of them counts.
            width += request.width
            prefilling = _count_uncomputed(request) > request.width
            # Prompts get what those that decode leave; these are served in order of admission.
            room = self._budget - ((widest if prefilling else width) - 1)
            if room <= 0:
                # Requests ahead may use up the budget at every step.
                ends.append(math.inf)
                continue
            steps_to_first_sample = -(-work // room) if prefilling else 1
            if request.branches is not None and request.branches.folded:
                # Its sequences fork in the step after the one that computes what they have in common.
                steps_to_first_sample += 1
            ends.append(request.most_computed - _count_known(request) + steps_to_first_sample - 1 + self._lag)
        return ends


def make_reservation(config: SchedulerConfig) -> Reservation:
    match config.admission:
        case "greedy":
            return GreedyReservation(config.watermark_blocks)
        case "no-evict":
            return NoEvictReservation(config)


def projected_peak_tokens(running: Sequence[Request], max_model_len: int, groups: KVGroups) -> int:
    """Most KV tokens ``running`` can hold together if each goes on to its limit and frees its memory at its end.

    A token is counted for each group of layers, and in those with a window what each request comes to hold at most.
    Without windows it is LightLLM's future peak: with requests sorted by tokens left, descending, the largest over k of
    what the first k+1 hold now plus ``left[k]`` more for each of them.
    """
    pairs = sorted(
        (
            (min(r.max_total_tokens, max_model_len) - r.num_tokens, r.num_tokens)
            for request in running
            for r in [request] * (request.width if len(request.sequences) == 1 else 1)
        ),
        reverse=True,
    )
    held = peak = 0
    for count, (left, num_known) in enumerate(pairs, start=1):
        held += num_known
        peak = max(peak, held + left * count)
    whole = groups.count - len(groups.with_window)
    return whole * peak + sum(groups.count_window_tokens(num_known + left) for left, num_known in pairs)


def _list_leaders(running: Sequence[Request]) -> list[Request]:
    """Each request once, whether it runs as one sequence or as several."""
    return [request for request in running if request.leader is request]


def _count_known(request: Request) -> int:
    """Tokens of the request, or of each of its sequences."""
    return request.num_expected if request.branches is None else request.branches.num_tokens


def _count_uncomputed(request: Request) -> int:
    """Tokens to compute before each of its sequences samples again."""
    branches = request.branches
    if branches is None:
        return request.num_expected - request.num_computed
    apart = request.width * (branches.num_tokens - request.num_tokens) if branches.folded else 0
    return sum(sequence.num_uncomputed for sequence in branches.sequences) + apart
