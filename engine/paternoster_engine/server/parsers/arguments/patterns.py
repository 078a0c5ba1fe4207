"""``pattern`` of JSON schema, which is found anywhere in a text, as a regular expression of the whole text."""

import re

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas.patterns import (
    ANYTHING,
    PIECE,
    UnsupportedPattern,
    split_alternatives,
)

_ASCII = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
"""Classes of ECMAScript, where llguidance takes digits and letters of all scripts."""


def match_whole(pattern: str) -> str:
    """Raises :class:`GrammarError` where ``^`` or ``$`` stands within."""
    try:
        return "|".join(map(_whole_option, split_alternatives(PIECE.findall(pattern))))
    except UnsupportedPattern as error:
        raise GrammarError(f"pattern {pattern!r:.60}: {error}") from error


def _whole_option(pieces: list[str]) -> str:
    begin, end = pieces[:1] == ["^"], pieces[-1:] == ["$"]
    inner = pieces[begin : len(pieces) - end]
    for piece in ("^", "$", r"\b", r"\B"):
        if piece in inner:
            raise GrammarError(f"pattern: {piece} is not supported within one of a text that is written plainly")
    text = "".join(map(_translate_piece, inner))
    return f"{'' if begin else ANYTHING}(?:{text}){'' if end else ANYTHING}"


def _translate_piece(piece: str) -> str:
    if piece in _ASCII:
        return f"[{_ASCII[piece]}]"
    if piece.startswith("["):
        return re.sub(r"\\[dw]", lambda found: _ASCII[found[0]], piece)
    return piece
