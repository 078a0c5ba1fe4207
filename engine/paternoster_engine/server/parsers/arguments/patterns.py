"""``pattern`` of JSON schema, which is found anywhere in a text, as a regular expression of the whole text."""

import re
from collections.abc import Iterator

from paternoster_engine.sampling.grammars.errors import GrammarError

ANYTHING = "(?s:.*)"
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_ASCII = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
"""Of ECMAScript, where llguidance takes digits and letters of all scripts."""


def whole(pattern: str) -> str:
    """Raises :class:`GrammarError` where ``^`` or ``$`` stands within."""
    return "|".join(_whole_option(list(option)) for option in _options(pattern))


def _options(pattern: str) -> Iterator[list[str]]:
    """What stands between ``|`` that are in no parentheses."""
    option: list[str] = []
    depth = 0
    for piece in _PIECE.findall(pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            raise GrammarError(f"pattern {pattern!r}: a parenthesis is not opened")
        if piece == "|" and depth == 0:
            yield option
            option = []
        else:
            option.append(piece)
    if depth:
        raise GrammarError(f"pattern {pattern!r}: a parenthesis is not closed")
    yield option


def _whole_option(pieces: list[str]) -> str:
    begin, end = pieces[:1] == ["^"], pieces[-1:] == ["$"]
    inner = pieces[begin : len(pieces) - end]
    for piece in ("^", "$", r"\b", r"\B"):
        if piece in inner:
            raise GrammarError(f"pattern: {piece} is not supported within one of a text that is written plainly")
    text = "".join(map(_translated, inner))
    return f"{'' if begin else ANYTHING}(?:{text}){'' if end else ANYTHING}"


def _translated(piece: str) -> str:
    if piece in _ASCII:
        return f"[{_ASCII[piece]}]"
    if piece.startswith("["):
        return re.sub(r"\\[dw]", lambda found: _ASCII[found[0]], piece)
    return piece
