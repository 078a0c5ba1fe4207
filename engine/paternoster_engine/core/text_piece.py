"""A piece of a text chain, as a request has it."""

from typing import NamedTuple


class TextPiece(NamedTuple):
    """A piece of a request's text chain."""

    num_tokens: int
    """Tokens of the prompt, up to its end or later."""
    digest: int
