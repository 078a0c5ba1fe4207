"""Text that comes in pieces, for parsers that are written as if it were whole."""

import re
from collections.abc import Callable

from paternoster_engine.server.parsers.events import Event, Read

_BLANK = re.compile(r"\s*")


class Reader:
    """Methods that wait are generators: they yield None until there is more text, or none will come any more.

    ``held`` is what is read but not decided upon, and ``place`` how much of it was looked at: :meth:`commit` drops
    that, :meth:`reject` goes back to its beginning.
    """

    def __init__(self) -> None:
        self.held = ""
        self.place = 0
        self.ended = False
        self.reasoning = False
        """Whether what comes next is reasoning, as far as is known."""

    def commit(self) -> str:
        """The text that was looked at, which is dropped."""
        text, self.held, self.place = self.held[: self.place], self.held[self.place :], 0
        return text

    def reject(self, length: int = 0) -> str:
        """Look again at what is held, without its first ``length`` characters, which are returned."""
        self.place = length
        return self.commit()

    def more(self) -> Read[bool]:
        """Wait; False if there is no more."""
        if self.ended:
            return False
        yield None
        return True

    def peek(self) -> Read[str]:
        """The next character, which is not taken; empty at the end."""
        while self.place == len(self.held):
            if not (yield from self.more()):
                return ""
        return self.held[self.place]

    def peek_solid(self) -> Read[str]:
        """Take white space, and :meth:`peek`."""
        while True:
            found = _BLANK.match(self.held, self.place)
            assert found is not None
            self.place = found.end()
            if self.place < len(self.held) or not (yield from self.more()):
                return self.held[self.place : self.place + 1]

    def take(self, *options: str) -> Read[str]:
        """Take the option that the text goes on with; empty if it is none of them."""
        while True:
            for option in options:
                if self.held.startswith(option, self.place):
                    self.place += len(option)
                    return option
            rest = self.held[self.place :]
            if not any(option.startswith(rest) for option in options) or not (yield from self.more()):
                return ""

    def match(self, pattern: re.Pattern[str], most: int | None = None) -> Read[str | None]:
        """Take what ``pattern`` matches once that is followed by something else; None where nothing does.

        ``most``: characters after which no match is looked for any more.
        """
        while True:
            found = pattern.match(self.held, self.place)
            if found is not None and (found.end() < len(self.held) or self.ended):
                self.place = found.end()
                return found[0]
            if most is not None and len(self.held) - self.place > most:
                return None
            if not (yield from self.more()):
                return None

    def until(self, markers: tuple[str, ...], most: int | None = None) -> Read[str | None]:
        """Take the text up to the first marker; None where there is none, or none within ``most`` characters."""
        start, looked, longest = self.place, self.place, max(map(len, markers))
        while True:
            found = [place for marker in markers if (place := self.held.find(marker, looked)) >= 0]
            if found and (most is None or min(found) - start <= most):
                self.place = min(found)
                return self.held[start : self.place]
            looked = max(start, len(self.held) - longest + 1)
            if (most is not None and looked - start > most) or not (yield from self.more()):
                return None

    def pass_until(self, markers: tuple[str, ...], make: Callable[[str], Event]) -> Read[str]:
        """Give text away up to the first marker and the white space before it, which are held, and return the marker.

        Empty, and all is given away, where the text ends without. What may become a marker is held back.
        """
        while True:
            found = min(((self.held.find(m), m) for m in markers if m in self.held), default=None)
            if found is not None:
                start, marker = found
                end = start + len(marker)
            else:
                marker = ""
                start = end = len(self.held) - self._begun(markers)
            shown = len(self.held[:start].rstrip())
            yield make(self.reject(shown))
            if marker:
                self.place = end - shown
                return marker
            if not (yield from self.more()):
                yield make(self.reject(len(self.held)))
                return ""

    def pass_rest(self, make: Callable[[str], Event]) -> Read[None]:
        """Give away all that is left."""
        while True:
            yield make(self.reject(len(self.held)))
            if not (yield from self.more()):
                return

    def _begun(self, markers: tuple[str, ...]) -> int:
        """Length of the longest end of the held text that begins a marker."""
        longest = min(len(self.held), max(map(len, markers)) - 1)
        for length in range(longest, 0, -1):
            if any(marker.startswith(self.held[-length:]) for marker in markers):
                return length
        return 0
