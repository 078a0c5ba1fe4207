"""What is known of one request's proposals, and how many tokens are worth proposing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

from paternoster_engine.core.lookup import Lookup

FREE_TOKENS = 16
"""Tokens whose own time is that of a step besides."""
MOST = 16
"""Tokens proposed for a request at once."""
PROBE = 64
"""Tokens of a request after which one is proposed again, where it was not worth it."""
SHORT, LONG = 0.8, 0.98
"""What a token leaves of what was known of its request's rate, and of everybody's."""


@dataclass(slots=True)
class Drafting:
    """Of one request."""

    rates: dict[str, float]
    """Proposer -> how many of its tokens prove right, 0 to 1."""
    probe_at: int
    """Tokens from which on one is proposed where it is not worth it."""
    proposer: str = ""
    """Whose proposal is under way."""
    lookup: Lookup = field(default_factory=Lookup)
    passed_over: Sequence[int] = ()
    """What stood there before, where a draft model was asked in its place."""
    num_read: int = 0
    """Its first tokens, whose keys and values a draft model has in the request's blocks."""

    def depth(self, proposer: str, load: int, num_tokens: int) -> int:
        """Tokens to propose in a step of ``load`` tokens, now that the request has ``num_tokens``."""
        depth = worthwhile(self.rates[proposer], load)
        return 1 if depth == 0 and num_tokens >= self.probe_at else depth


def worthwhile(rate: float, load: int) -> int:
    """How many tokens in a row are right with a likelihood above their :func:`price`.

    ``rate``: of one token, 0 to 1. ``load``: tokens of the step.
    """
    share = price(load)
    if rate <= share:
        return 0
    return MOST if rate >= 1 else min(MOST, int(log(share) / log(rate)))


def price(load: int) -> float:
    """What one more token takes of the time of a step of ``load`` tokens: the share that its tokens have in it."""
    return load / (FREE_TOKENS + load)


def best_depth(rate: float, price: float) -> tuple[int, float]:
    """How many tokens to propose a step so that a token takes least time, and the share of its time that this saves.

    ``rate``: of one token, 0 to 1. ``price``: of one token, in steps.
    """
    depth, expected, time = 0, 1.0, 1.0
    while depth < MOST:
        expected += rate ** (depth + 1)
        following = (1 + (depth + 1) * price) / expected
        if following >= time:
            break
        depth, time = depth + 1, following
    return depth, 1 - time


def after(rate: float, kept: float, right: int, wrong: bool) -> float:
    """``rate`` after ``right`` tokens that proved right and, perhaps, a wrong one; a token leaves ``kept`` of it."""
    rate = 1 - (1 - rate) * kept**right
    return rate * kept if wrong else rate
