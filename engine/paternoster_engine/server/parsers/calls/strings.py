"""Decode strings of JSON and of Python while the model writes them."""

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
"""The beginning of an escape."""
_PLAIN = {quote: re.compile(rf"[^\\{quote}]+") for quote in "\"'"}
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""} | {
    character: character for character in "\\'\""
}
REPLACEMENT = "\ufffd"
"""Stands for what no text can contain: a lone surrogate, or a number beyond Unicode."""


def pass_string(reader: Reader, make: Callable[[str], Event], quote: str) -> Read[bool]:
    """Emit the decoded string up to ``quote``, which is dropped; False where the text ends before.

    The held text begins behind the opening quote. The escapes are those of Python, which include those of JSON but for
    ``\\/``, which is one in double quotes. Invalid escapes stay as they are, and any string may contain line breaks.
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
                # More text decides whether this is the closing quote, or which escape it is.
                break
            elif found := _ESCAPE.match(reader.held, place):
                text, place = _decode_escape(found, quote), found.end()
            else:
                text, place = reader.held[place], place + 1
            decoded += pairs.join_pairs(text, last=closed)
        reader.reject(place)
        yield make("".join(decoded))
        if closed:
            return True
        if not (yield from reader.wait_for_text()):
            reader.reject(len(reader.held))
            return False


class _Pairs:
    """Joins surrogates that were written as two escapes."""

    def __init__(self) -> None:
        self._high = ""

    def join_pairs(self, text: str, *, last: bool) -> Iterator[str]:
        """Return the text that is complete with the piece ``text``; ``last``: no further piece follows."""
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


def _decode_escape(escape: re.Match[str], quote: str) -> str:
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
