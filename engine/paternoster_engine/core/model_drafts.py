"""Which requests a draft model proposes tokens for, how many, and how far it has read each request.

A draft model reads a request's tokens before it proposes some, and stores their keys and values in memory of its own,
under the numbers of the request's own blocks: no second allocator, and nothing to free. It reads late, when it is to
propose, and only where what is left of the request pays for it. Which rows it has written in which blocks is remembered
by their prefix-cache keys, so that a beginning that the cache holds is read once.

It is off where it does not pay. It is tried again out of an allowance, a small share of the time of all steps: one
token costs little, but the text before it may have to be read first.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paternoster_engine.core.drafting.draft_state import (
    OVERHEAD_TOKENS,
    REQUEST_DECAY,
    DraftState,
    best_length,
    token_cost,
    updated_rate,
)
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request
from paternoster_engine.core.stats import Counters

DRAFT = "draft"
MODEL_DECAY = 0.9
"""Weight of the past in the rate of all requests after one token: one model's rate settles soon."""
ALLOWANCE = 0.01
"""Share of the time of all steps that is spent on trying again."""
MAX_ALLOWANCE = 1000
"""Tokens: what the allowance comes to at most, so that what was saved up is no burst."""


class DraftTask(NamedTuple):
    """The work of a draft model for one request."""

    request: Request
    start: int
    """First token to read."""
    stop: int
    """Tokens read then."""
    depth: int
    """Tokens to propose after all that are known; 0 where these are not all read then."""


class Drafter(Protocol):
    """A draft model. It may write to the places of the tokens that it reads and proposes, in its own memory."""

    @property
    def cost(self) -> float:
        """Time of a step of it over that of one of the model."""
        ...

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        """Return for each of ``tasks`` at most ``depth`` tokens."""
        ...


class ModelDrafts:
    """Plans the tasks of a draft model."""

    def __init__(self, drafter: Drafter, kv: KVCache, counters: Counters) -> None:
        """``kv``: of one group of layers, without a window."""
        self._drafter = drafter
        self._kv = kv
        self._counters = counters
        self._allowance = 0.0
        """In tokens of a step."""
        self._rows: dict[int, bytes] = {}
        """Block -> prefix-cache key of the row that is written there, all of it."""

    def begin_step(self, load: int) -> None:
        """Begin a step of ``load`` tokens, which adds its share to the allowance."""
        self._allowance = min(MAX_ALLOWANCE, self._allowance + ALLOWANCE * (OVERHEAD_TOKENS + load))

    def choose_length(self, request: Request, drafting: DraftState, load: int) -> int:
        """Tokens worth proposing in a step of ``load`` tokens, reading included."""
        depth, saved = self._best_length(drafting, load)
        if depth == 0:
            return int(self._token_cost(load) < 1 and self._trial_cost(request, drafting) <= self._allowance)
        reading = self._drafter.cost * self._count_unread(request, drafting)
        return depth if reading <= saved * (OVERHEAD_TOKENS + load) / load * self._expected_tokens_left(request) else 0

    def saved_share(self, drafting: DraftState, load: int) -> float:
        """Share of a token's time that it saves in a step of ``load`` tokens, without reading."""
        return self._best_length(drafting, load)[1]

    def plan_draft(self, request: Request, drafting: DraftState, depth: int, load: int, room: int) -> DraftTask:
        """Read what is unread, and propose up to ``depth`` tokens if all is; ``room`` tokens of both at most."""
        start = drafting.num_read
        stop = min(request.num_tokens, start + room)
        if self._best_length(drafting, load)[0] == 0:
            self._allowance -= self._trial_cost(request, drafting)
        drafting.num_read = stop
        depth = min(depth, start + room - stop)
        size = self._kv.block_size
        for block in request.block_table.block_ids[start // size : (stop + depth) // size + 1]:
            self._rows.pop(block, None)
        self._record_rows(request, start, stop)
        return DraftTask(request, start, stop, depth)

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        """Run the draft model on ``tasks``, all of a step."""
        return self._drafter.propose(tasks)

    def record_accepted(
        self, request: Request, drafting: DraftState, num_known: int, proposed: int, accepted: int
    ) -> None:
        """Record that of ``proposed`` tokens after ``known`` the first ``accepted`` were accepted."""
        drafting.num_read = num_known + min(accepted, proposed - 1)
        self._record_rows(request, num_known, drafting.num_read)

    def record_rejected(self, drafting: DraftState) -> None:
        """Record that no token of the draft could be proposed."""
        drafting.rates[DRAFT] = updated_rate(drafting.rates[DRAFT], REQUEST_DECAY, 0, True)

    def _best_length(self, drafting: DraftState, load: int) -> tuple[int, float]:
        return best_length(drafting.rates[DRAFT], self._token_cost(load))

    def _token_cost(self, load: int) -> float:
        """Cost of a token that it proposes: a step of its own besides."""
        return token_cost(load) + self._drafter.cost

    def _trial_cost(self, request: Request, drafting: DraftState) -> float:
        """What one token costs, in tokens of a step."""
        return 1 + self._drafter.cost * (OVERHEAD_TOKENS + self._count_unread(request, drafting))

    def _count_unread(self, request: Request, drafting: DraftState) -> int:
        """Return the tokens to read, without first rows that were written into these blocks before, for any request."""
        if drafting.num_read == 0 and self._kv.prefix_cache:
            blocks, size, row = request.block_table.block_ids, self._kv.block_size, 0
            while (row + 1) * size < request.num_tokens and self._rows.get(blocks[row]) == self._kv.row_key(
                request, row
            ):
                row += 1
            drafting.num_read = row * size
        return request.num_tokens - drafting.num_read

    def _record_rows(self, request: Request, start: int, stop: int) -> None:
        """Rows that end with tokens ``start`` to before ``stop``, which are known, are written."""
        if self._kv.prefix_cache:
            for row in range(start // self._kv.block_size, stop // self._kv.block_size):
                self._rows[request.block_table.block_ids[row]] = self._kv.row_key(request, row)

    def _expected_tokens_left(self, request: Request) -> float:
        """Return the tokens that the request is expected to get yet: its limit, or the mean of finished requests."""
        finished = sum(self._counters.finished.values())
        left = request.params.max_tokens - len(request.output)
        return min(left, self._counters.generation_tokens / finished) if finished else left
