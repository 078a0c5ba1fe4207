"""For whom a draft model proposes tokens, how many, and how far it has read each request.

A draft model reads a request's tokens before it proposes some, and keeps what it made of them in memory of its own,
under the numbers of the request's own blocks: no second allocator, and nothing to free. It reads late, when it is to
propose, and only where what is left of the request pays for it. Which rows it has written in which blocks is remembered
by their prefix-cache keys, so that a beginning that the cache holds is read once.

It is off where it does not pay. It is tried again out of an allowance, a small share of the time of all steps: one
token costs little, but the text before it may have to be read first.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paternoster_engine.core.drafting import FREE_TOKENS, SHORT, Drafting, after, best_depth, price
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request
from paternoster_engine.core.stats import Counters

DRAFT = "draft"
ALLOWANCE = 0.01
"""Of the time of all steps, for trying again."""
MOST_ALLOWED = 1000
"""Tokens: what the allowance comes to at most, so that what was saved up is no burst."""


class Ask(NamedTuple):
    """What a draft model is to do for one request."""

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

    def propose(self, asks: Sequence[Ask]) -> Sequence[Sequence[int]]:
        """For each of ``asks`` at most ``depth`` tokens."""
        ...


class ModelDrafts:
    """Decides what a draft model is asked."""

    def __init__(self, drafter: Drafter, kv: KVCache, counters: Counters) -> None:
        """``kv``: of one group of layers, without a window."""
        self._drafter = drafter
        self._kv = kv
        self._counters = counters
        self._allowance = 0.0
        """In tokens of a step."""
        self._rows: dict[int, bytes] = {}
        """Block -> prefix-cache key of the row that is written there, all of it."""

    def begin(self, load: int) -> None:
        """A step of ``load`` tokens, which earns its share of the allowance."""
        self._allowance = min(MOST_ALLOWED, self._allowance + ALLOWANCE * (FREE_TOKENS + load))

    def depth(self, request: Request, drafting: Drafting, load: int) -> int:
        """Tokens worth proposing in a step of ``load`` tokens, reading included."""
        depth, saved = self._best(drafting, load)
        if depth == 0:
            return int(self._price(load) < 1 and self._to_try(request, drafting) <= self._allowance)
        reading = self._drafter.cost * self._unread(request, drafting)
        return depth if reading <= saved * (FREE_TOKENS + load) / load * self._left(request) else 0

    def saves(self, drafting: Drafting, load: int) -> float:
        """Share of a token's time that it saves in a step of ``load`` tokens, without reading."""
        return self._best(drafting, load)[1]

    def ask(self, request: Request, drafting: Drafting, depth: int, load: int, room: int) -> Ask:
        """Read what is unread, and propose up to ``depth`` tokens if all is; ``room`` tokens of both at most."""
        start = drafting.num_read
        stop = min(request.num_tokens, start + room)
        if self._best(drafting, load)[0] == 0:
            self._allowance -= self._to_try(request, drafting)
        drafting.num_read = stop
        depth = min(depth, start + room - stop)
        size = self._kv.block_size
        for block in request.block_ids[start // size : (stop + depth) // size + 1]:
            self._rows.pop(block, None)
        self._remember(request, start, stop)
        return Ask(request, start, stop, depth)

    def propose(self, asks: Sequence[Ask]) -> Sequence[Sequence[int]]:
        """What the draft model says to ``asks``, all of a step."""
        return self._drafter.propose(asks)

    def learn(self, request: Request, drafting: Drafting, known: int, proposed: int, accepted: int) -> None:
        """Of ``proposed`` tokens after ``known`` the first ``accepted`` are right; the last one was never read."""
        drafting.num_read = known + min(accepted, proposed - 1)
        self._remember(request, known, drafting.num_read)

    def useless(self, drafting: Drafting) -> None:
        """Nothing that it said could be proposed."""
        drafting.rates[DRAFT] = after(drafting.rates[DRAFT], SHORT, 0, True)

    def _best(self, drafting: Drafting, load: int) -> tuple[int, float]:
        return best_depth(drafting.rates[DRAFT], self._price(load))

    def _price(self, load: int) -> float:
        """Of a token that it proposes: a step of its own besides."""
        return price(load) + self._drafter.cost

    def _to_try(self, request: Request, drafting: Drafting) -> float:
        """What one token costs, in tokens of a step."""
        return 1 + self._drafter.cost * (FREE_TOKENS + self._unread(request, drafting))

    def _unread(self, request: Request, drafting: Drafting) -> int:
        """Tokens to read, but for those of first rows that were written into these blocks for whomever."""
        if drafting.num_read == 0 and self._kv.prefix_cache:
            blocks, size, row = request.block_ids, self._kv.block_size, 0
            while (row + 1) * size < request.num_tokens and self._rows.get(blocks[row]) == self._kv.key(request, row):
                row += 1
            drafting.num_read = row * size
        return request.num_tokens - drafting.num_read

    def _remember(self, request: Request, start: int, stop: int) -> None:
        """Rows that end with tokens ``start`` to before ``stop``, which are known, are written."""
        if self._kv.prefix_cache:
            for row in range(start // self._kv.block_size, stop // self._kv.block_size):
                self._rows[request.block_ids[row]] = self._kv.key(request, row)

    def _left(self, request: Request) -> float:
        """Tokens that the request is expected to get yet: those it may, or as many as others got, where these end."""
        finished = sum(self._counters.finished.values())
        left = request.params.max_tokens - len(request.output)
        return min(left, self._counters.generation_tokens / finished) if finished else left
