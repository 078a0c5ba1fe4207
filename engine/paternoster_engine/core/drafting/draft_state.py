"""The state of one request's proposals, and how many tokens are worth proposing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

from paternoster_engine.core.drafting.ngram_lookup import NgramLookup

OVERHEAD_TOKENS = 16
"""Tokens that take as long as a step's fixed time."""
MAX_PROPOSED = 16
"""Tokens proposed for a request at once."""
PROBE_INTERVAL = 64
"""Tokens of a request after which one is proposed again to measure its rate, where proposing did not pay."""
REQUEST_DECAY, ENGINE_DECAY = 0.8, 0.98
"""Weight of the past in a request's rate, and in the engine's, after one token."""


@dataclass(slots=True)
class DraftState:
    """Speculation state of one request."""

    rates: dict[str, float]
    """Proposer -> share of its tokens that are accepted, 0 to 1."""
    probe_at: int
    """Number of tokens at which one is proposed although it does not pay."""
    proposer: str = ""
    """Proposer of the proposal under way."""
    lookup: NgramLookup = field(default_factory=NgramLookup)
    unused_lookup: Sequence[int] = ()
    """The lookup's proposal, where the draft model proposed in its place."""
    num_read: int = 0
    """First tokens whose keys and values a draft model has in the request's blocks."""

    def choose_length(self, proposer: str, load: int, num_tokens: int) -> int:
        """Tokens to propose in a step of ``load`` tokens, now that the request has ``num_tokens``."""
        depth = worthwhile_length(self.rates[proposer], load)
        return 1 if depth == 0 and num_tokens >= self.probe_at else depth


def worthwhile_length(rate: float, load: int) -> int:
    """Return how many tokens in a row are accepted with a likelihood above their :func:`token_cost`.

    ``rate``: of one token, 0 to 1. ``load``: tokens of the step.
    """
    share = token_cost(load)
    if rate <= share:
        return 0
    return MAX_PROPOSED if rate >= 1 else min(MAX_PROPOSED, int(log(share) / log(rate)))


def token_cost(load: int) -> float:
    """Return the share of a step's time that its ``load`` tokens take, which one more token costs."""
    return load / (OVERHEAD_TOKENS + load)


def best_length(rate: float, price: float) -> tuple[int, float]:
    """Return how many tokens to propose a step so that a token takes least time, and the share of its time saved.

    ``rate``: of one token, 0 to 1. ``price``: of one token, in steps.
    """
    depth, expected, time = 0, 1.0, 1.0
    while depth < MAX_PROPOSED:
        expected += rate ** (depth + 1)
        following = (1 + (depth + 1) * price) / expected
        if following >= time:
            break
        depth, time = depth + 1, following
    return depth, 1 - time


def updated_rate(rate: float, decay: float, accepted: int, rejected: bool) -> float:
    """Return ``rate`` after ``accepted`` tokens and, perhaps, a rejected one; ``decay``: weight of the past a token."""
    rate = 1 - (1 - rate) * decay**accepted
    return rate * decay if rejected else rate
