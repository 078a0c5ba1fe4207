"""How likely the model held a token, and which tokens it held most likely in its place."""

from typing import NamedTuple


class TokenLogprobs(NamedTuple):
    """Natural logarithms of probabilities, by the model's own logits: before penalties, temperature and filters."""

    token: int
    logprob: float
    rank: int
    """1 for the most likely token of the vocabulary."""
    top: tuple[tuple[int, float], ...]
    """(token, logprob) of the most likely ones, best first, as many as the request asked for."""
