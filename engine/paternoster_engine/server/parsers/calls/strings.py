"""Strings of JSON and of Python, decoded while they are written."""

import re
import unicodedata
from collections.abc import Callable, Iterator

from paternoster_engine.server.parsers.events import Event, Read
from paternoster_engine.server.parsers.reader import Reader

_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|N\{(?P<name>[A-Za-z0-9 -]{1,100})\}|(?P<other>.))",
    re.DOTALL,
)
_BEGUN = re.compile(r"\\(?:[0-7]{0,2}|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|N(?:\{[A-Za-z0-9 -]{0,100})?)")
"""An escape that may go on."""
_PLAIN = {quote: re.compile(rf"[^\\{quote}]+") for quote in "\"'"}
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""} | {
    character: character for character in "\\'\""
}
REPLACEMENT = "\ufffd"
"""For what no text can have: half of a pair of surrogates, or a number beyond Unicode."""


def pass_string(reader: Reader, make: Callable[[str], Event], quote: str) -> Read[bool]:
    """Give away the decoded string up to ``quote``, which is dropped; False where the text ends before.

    The held text begins behind the opening quote. Escapes are those of Python, and so of JSON; ``\\/`` is one where
    the quote is JSON's. An escape that is none stays as it is, and line breaks may be in any string.
    """
    pairs = _Pairs()
    while True:
        decoded: list[str] = []
        place, closed = 0, False
        while place < len(reader.held) and not closed:
            if found := _PLAIN[quote[0]].match(reader.held, place):
                text, place = found[0], found.end()
            elif reader.held.startswith(quote, place):
                text, place, closed = "", place + len(quote), True
            elif quote.startswith(reader.held[place : place + len(quote)]) or _BEGUN.fullmatch(reader.held, place):
                # What it is is not known before more of it comes.
                break
            elif found := _ESCAPE.match(reader.held, place):
                text, place = _decoded(found, quote), found.end()
            else:
                text, place = reader.held[place], place + 1
            decoded += pairs.joined(text, last=closed)
        reader.reject(place)
        yield make("".join(decoded))
        if closed:
            return True
        if not (yield from reader.more()):
            reader.reject(len(reader.held))
            return False


class _Pairs:
    """Puts surrogates together that were written as two escapes."""

    def __init__(self) -> None:
        self._high = ""

    def joined(self, text: str, *, last: bool) -> Iterator[str]:
        """The next piece, as far as it is known; ``last``: there is no other."""
        if self._high and (text or last):
            high, self._high = self._high, ""
            if "\udc00" <= text[:1] <= "\udfff":
                yield (high + text).encode("utf-16", "surrogatepass").decode("utf-16")
                return
            yield REPLACEMENT
        if "\ud800" <= text[:1] <= "\udbff":
            self._high = text
        else:
            yield REPLACEMENT if "\udc00" <= text[:1] <= "\udfff" else text


def _decoded(escape: re.Match[str], quote: str) -> str:
    for kind, base in (("octal", 8), ("x", 16), ("u", 16), ("U", 16)):
        if escape[kind] is not None:
            number = int(escape[kind], base)
            return chr(number) if number < 0x110000 else REPLACEMENT
    if escape["name"] is not None:
        try:
            return unicodedata.lookup(escape["name"])
        except KeyError:
            return escape[0]
    if escape["other"] == "/" and quote == '"':
        return "/"
    return _SIMPLE.get(escape["other"], escape[0])
