r"""``pattern`` of JSON schema, a regular expression of ECMA-262, rewritten without look-around.

A look-ahead at the beginning applies to the whole string, so it becomes an expression of its own beside the rest. A
negative one becomes its complement, where that is simple: ``(?!admin)``, ``(?!.*\.\.)``, ``(?![-+.]*$)``. A ``\b`` at
an end becomes a character that belongs to no word, or the end of the string.
"""

import re
from collections.abc import Iterator, Sequence

PIECE = re.compile(
    r"\\(?:[pP]\{[^}]{0,64}\}|u\{[0-9A-Fa-f]{1,8}\}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|k<[^>]{0,64}>"
    r"|[1-9][0-9]{0,9}|.)|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)|\(\?(?:[:=!]|<[=!]|P?<[A-Za-z_$][\w$]{0,64}>|[a-z-]{1,8}[:)])"
    r"|[*+?]\??|\{[0-9]{1,10}(?:,[0-9]{0,10})?\}\??|.",
    re.DOTALL,
)
"""One token of an expression. A class that is not closed reaches to the end, so that matching takes linear time."""
ANYTHING = "(?s:.*)"
WORD = "0-9A-Za-z_"
MOST_PIECES = 1024
"""Most tokens of an expression; a longer one is not rewritten."""
MOST_AHEAD = 16
"""Most look-aheads at the beginning of an expression."""
MOST_FORBIDDEN = 32
"""Most characters of a negative look-ahead that becomes its complement."""
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
_EDGES = (r"\b", r"\B")
_CHARACTER = re.compile(r"[^\\\[\](){}*+?|^$.]|\\[^A-Za-z0-9]|\\x..|\\u....|\\u\{.*\}|\\[nrt]", re.DOTALL)
_CLASS = re.compile(r"\[.*\]|\\[dDwWsS]|\\[pP]\{.*\}", re.DOTALL)
_ANY = re.compile(r"(?:\.|\[\\s\\S\]|\[\\S\\s\]|\[\\d\\D\]|\[\\w\\W\])", re.DOTALL)


class UnsupportedPattern(ValueError):
    """The expression cannot be rewritten without look-around, or not by the rules of this module."""


def without_look_around(pattern: str) -> list[list[str]]:
    """Rewrite ``pattern`` as options, each a list of expressions: a string matches all expressions of one option.

    Raises :class:`UnsupportedPattern`.
    """
    pieces = PIECE.findall(pattern)
    if len(pieces) > MOST_PIECES:
        return [[pattern]]
    if not any(piece in _LOOKS or piece in _EDGES for piece in pieces):
        return [["".join(_translate_tokens(pieces))]]
    options = [list(_split_conjunction(option)) for option in split_alternatives(pieces)]
    if all(len(option) == 1 for option in options):
        return [["|".join(option[0] for option in options)]]
    return options


def _translate_tokens(pieces: Sequence[str]) -> Iterator[str]:
    """Translate tokens into the syntax of Rust's regular expressions."""
    for piece in pieces:
        if piece in _LOOKS or piece in _EDGES or re.fullmatch(r"\\(?:[1-9].*|k<.*>)", piece):
            raise UnsupportedPattern(f"{piece} is not supported here")
        if piece.startswith("(?<"):
            yield "("
        elif piece.startswith("["):
            yield re.sub(r"\\.|\[", lambda found: _translate_escape(found[0], within=True), piece[1:]).join(["[", ""])
        else:
            yield _translate_escape(piece)


def _translate_escape(piece: str, *, within: bool = False) -> str:
    """Translate one escape; ``within``: inside a class."""
    if piece == "[" and within:
        return r"\["
    if re.fullmatch(r"\\c[A-Za-z]", piece):
        return f"\\x{ord(piece[2]) % 32:02x}"
    if piece == r"\0":
        return r"\x00"
    if piece == r"\b" and within:
        return r"\x08"
    # Escapes of characters that have a meaning in Rust's syntax and none in ECMA-262.
    return piece[1:] if re.fullmatch(r"\\[<>\"'/:;,=!@#%&`~_ eghijlmoqyzAZ]", piece) else piece


def split_alternatives(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Split tokens at each ``|`` outside parentheses."""
    option: list[str] = []
    depth = 0
    for piece in pieces:
        depth += 1 if piece[0] == "(" and piece[-1] != ")" else -1 if piece == ")" else 0
        if depth < 0:
            raise UnsupportedPattern("a parenthesis is not opened")
        if piece == "|" and depth == 0:
            yield option
            option = []
        else:
            option.append(piece)
    if depth:
        raise UnsupportedPattern("a parenthesis is not closed")
    yield option


def _split_conjunction(pieces: list[str]) -> Iterator[str]:
    """Yield the expressions that a string of one option must match, all of them."""
    rest, count = pieces, 0
    while rest[:1] == ["^"] and rest[1:2] and rest[1] in ("(?=", "(?!"):
        count += 1
        if count > MOST_AHEAD:
            raise UnsupportedPattern(f"more than {MOST_AHEAD} look-aheads")
        end = _find_closing(rest, 1)
        ahead, negative = rest[2:end], rest[1] == "(?!"
        if end + 1 < len(rest) and rest[end + 1][0] in "*+?{":
            raise UnsupportedPattern("a look-ahead that is repeated")
        if negative:
            for option in split_alternatives(_strip_parentheses(ahead)):
                yield from _exclude_prefix(option)
        else:
            yield from _split_lookaheads(ahead)
        rest = ["^", *rest[end + 1 :]]
    yield _without_edges(rest)


def _find_closing(pieces: Sequence[str], start: int) -> int:
    """Return the index of the token that closes the parenthesis at ``start``."""
    depth = 0
    for place in range(start, len(pieces)):
        piece = pieces[place]
        depth += 1 if piece[0] == "(" and piece[-1] != ")" else -1 if piece == ")" else 0
        if depth == 0:
            return place
    raise UnsupportedPattern("a parenthesis is not closed")


def _strip_parentheses(pieces: list[str]) -> list[str]:
    """Remove parentheses around the whole expression."""
    while pieces[:1] and pieces[0] in ("(?:", "(") and _find_closing(pieces, 0) == len(pieces) - 1:
        pieces = pieces[1:-1]
    return pieces


def _split_lookaheads(pieces: list[str]) -> Iterator[str]:
    options = list(split_alternatives(pieces))
    begin = pieces[:1] == ["^"]
    if len(options) == 1:
        yield from _split_conjunction(pieces if begin else ["^", *pieces])
    else:
        yield f"^(?:{''.join(_translate_tokens(pieces))})"


def _without_edges(pieces: list[str]) -> str:
    r"""Rewrite ``\b`` at the ends of the expression."""
    begin, end = "", ""
    anchored = pieces[:1] == ["^"]
    at = 1 if anchored else 0
    if pieces[at : at + 1] == [r"\b"]:
        if not _of_words(pieces[at + 1 : at + 2]):
            raise UnsupportedPattern(r"\b before what may be no word")
        begin = "^" if anchored else f"^(?:{ANYTHING}[^{WORD}])?"
        pieces = pieces[at + 1 :]
    closed = pieces[-1:] == ["$"]
    last = len(pieces) - (2 if closed else 1)
    if last >= 0 and pieces[last] == r"\b":
        if not _of_words(pieces[last - 1 : last]):
            raise UnsupportedPattern(r"\b after what may be no word")
        end = "$" if closed else f"(?:[^{WORD}]{ANYTHING})?$"
        pieces = pieces[:last]
    return begin + "".join(_translate_tokens(pieces)) + end


def _of_words(pieces: Sequence[str]) -> bool:
    r"""Whether ``pieces`` is one token that matches only characters of words."""
    if not pieces:
        return False
    return bool(re.fullmatch(r"\w|\\[wd]|\[(?:\\[wd]|[A-Za-z0-9_](?:-[A-Za-z0-9])?)+\]", pieces[0], re.ASCII))


def _exclude_prefix(pieces: list[str]) -> Iterator[str]:
    """Yield expressions that a string must match, all of them, so that it does not begin with ``pieces``."""
    pieces = pieces[1:] if pieces[:1] == ["^"] else pieces
    closed = pieces[-1:] == ["$"]
    inner = pieces[:-1] if closed else pieces
    options = list(split_alternatives(_strip_parentheses(inner)))
    if len(options) > 1:
        for option in options:
            yield from _exclude_prefix([*option, *pieces[len(inner) :]])
    elif len(inner) == 2 and inner[1] in ("*", "+") and closed and _is_one(inner[0]):
        yield ("^$|" if inner[1] == "+" else "") + _other_than(inner[0])
    elif len(inner) > 2 and _ANY.fullmatch(inner[0]) and inner[1] in ("*", "*?"):
        yield _exclude_pieces(inner[2:], closed)
    elif len(inner) <= MOST_FORBIDDEN and all(map(_is_one, inner)):
        others = [
            "".join(_translate_tokens(inner[:place])) + f"(?:{_other_than(piece)}{ANYTHING})?"
            for place, piece in enumerate(inner)
        ]
        if closed:
            others.append("".join(_translate_tokens(inner)) + "(?s:.+)")
        yield f"^(?:{'|'.join(others)})$"
    else:
        raise UnsupportedPattern("what a negative look-ahead leaves")


def _exclude_pieces(pieces: list[str], closed: bool) -> str:
    """Return an expression for strings without ``pieces`` anywhere, or, if ``closed``, without them at the end."""
    pieces = _strip_parentheses(pieces)
    if closed and len(pieces) == 1 and _is_one(pieces[0]):
        return f"^$|{_other_than(pieces[0])}$"
    if not closed and len(pieces) == 1 and _is_one(pieces[0]):
        return f"^{_other_than(pieces[0])}*$"
    if not closed and len(pieces) == 2 and all(map(_CHARACTER.fullmatch, pieces)):
        first, second = "".join(_translate_tokens(pieces[:1])), "".join(_translate_tokens(pieces[1:]))
        other = _other_than(pieces[0])
        if first == second:
            return f"^(?:{other}|{first}{other})*{first}?$"
        neither = f"[^{_in_class(pieces[0])}{_in_class(pieces[1])}]"
        return f"^(?:{other}|{first}+{neither})*{first}*$"
    raise UnsupportedPattern("what a negative look-ahead leaves")


def _is_one(piece: str) -> bool:
    """Whether the token matches exactly one character."""
    return bool(_CHARACTER.fullmatch(piece) or _CLASS.fullmatch(piece))


def _in_class(piece: str) -> str:
    return piece if piece.startswith("\\") or piece not in "^]-[&~" else "\\" + piece


def _other_than(piece: str) -> str:
    """Return an expression for one character that ``piece`` does not match."""
    if piece.startswith("[^"):
        return "".join(_translate_tokens(["[" + piece[2:]]))
    if piece.startswith("["):
        return "".join(_translate_tokens(["[^" + piece[1:]]))
    if _CLASS.fullmatch(piece):
        return piece.swapcase() if piece[1] in "dDwWsS" else ("\\P" if piece[1] == "p" else "\\p") + piece[2:]
    return f"[^{_in_class(piece)}]"


def other_than_text(text: str) -> str:
    """Return an expression for all strings but ``text``. Raises :class:`UnsupportedPattern` for a long one."""
    pieces = [re.escape(character) if character.isascii() else character for character in text]
    return " ".join(_exclude_prefix([*pieces, "$"])) if pieces else "(?s:.)"
