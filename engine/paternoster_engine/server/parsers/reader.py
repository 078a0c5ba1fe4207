"""Text that comes in pieces, for parsers that are written as if it were whole."""

import re
from collections.abc import Callable

from paternoster_engine.server.parsers.events import Event, Read

_BLANK = re.compile(r"\s*")
_BRACKETS = re.compile(r"[\]})]*")
_LEFTOVER = re.compile(r"[\s\]})\"'`,;]*")


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
        """Whether what comes next is reasoning, as far as the text shows."""
        self.starved = False
        """Whether the text ended while the parser waited for more."""
        self.cut_call = False
        """Whether the text ended within a call whose name was incomplete; the beginning of that call was dropped."""

    def commit(self) -> str:
        """The text that was looked at, which is dropped."""
        text, self.held, self.place = self.held[: self.place], self.held[self.place :], 0
        return text

    def reject(self, length: int = 0) -> str:
        """Look again at what is held, without its first ``length`` characters, which are returned."""
        self.place = length
        return self.commit()

    def drop_cut_call(self) -> None:
        """Drop the held text, the beginning of a call that ends before its name is complete."""
        self.reject(len(self.held))
        self.cut_call = True

    def wait_for_text(self) -> Read[bool]:
        """Wait; False if there is no more."""
        if self.ended:
            self.starved = True
            return False
        yield None
        return True

    def peek(self) -> Read[str]:
        """The next character, which is not consumed; empty at the end."""
        while self.place == len(self.held):
            if not (yield from self.wait_for_text()):
                return ""
        return self.held[self.place]

    def peek_solid(self) -> Read[str]:
        """Consume white space, and :meth:`peek`."""
        yield from self._skip_pattern(_BLANK)
        return self.held[self.place : self.place + 1]

    def match_option(self, *options: str) -> Read[str]:
        """Consume the option that the text goes on with; empty if it is none of them."""
        while True:
            for option in options:
                if self.held.startswith(option, self.place):
                    self.place += len(option)
                    return option
            rest = self.held[self.place :]
            if not any(option.startswith(rest) for option in options) or not (yield from self.wait_for_text()):
                return ""

    def ends_in(self, options: tuple[str, ...]) -> bool:
        """Whether the text ends here, or in the beginning of an option."""
        rest = self.held[self.place :]
        return self.ended and (not rest or any(option.startswith(rest) for option in options))

    def match_pattern(self, pattern: re.Pattern[str], most: int | None = None) -> Read[str | None]:
        """Consume what ``pattern`` matches once that is followed by something else; None where nothing does.

        ``most``: characters after which no match is looked for any more.
        """
        while True:
            found = pattern.match(self.held, self.place)
            if found is not None and (found.end() < len(self.held) or self.ended):
                self.place = found.end()
                return found[0]
            if most is not None and len(self.held) - self.place > most:
                return None
            if not (yield from self.wait_for_text()):
                return None

    def read_until(self, markers: tuple[str, ...], most: int | None = None) -> Read[str | None]:
        """Consume the text up to the first marker; None where there is none, or none within ``most`` characters."""
        start, looked, longest = self.place, self.place, max(map(len, markers))
        while True:
            found = [place for marker in markers if (place := self.held.find(marker, looked)) >= 0]
            if found and (most is None or min(found) - start <= most):
                self.place = min(found)
                return self.held[start : self.place]
            looked = max(start, len(self.held) - longest + 1)
            if (most is not None and looked - start > most) or not (yield from self.wait_for_text()):
                return None

    def pass_until(self, markers: tuple[str, ...], make: Callable[[str], Event], *, strips: bool = False) -> Read[str]:
        """Emit text up to the first marker, which stays held and is returned; ``strips``: white space before it, too.

        Returns an empty string, and emits everything, where the text ends without a marker. The beginning of a possible
        marker is held back.
        """
        while True:
            start, marker = self._first_marker(markers)
            end = start + len(marker)
            shown = len(self.held[:start].rstrip()) if strips else start
            yield make(self.reject(shown))
            if marker:
                self.place = end - shown
                return marker
            if not (yield from self.wait_for_text()):
                yield make(self.reject(len(self.held)))
                return ""

    def pass_value(self, markers: tuple[str, ...], make: Callable[[str], Event]) -> Read[bool]:
        """Emit text up to the first marker, with which the held text then begins.

        Returns False where the text ends without a marker; the beginning of a possible marker is then dropped.
        """
        while True:
            start, marker = self._first_marker(markers)
            yield make(self.reject(start))
            if marker:
                return True
            if not (yield from self.wait_for_text()):
                self.reject(len(self.held))
                return False

    def drop_leftover(self, marks: tuple[str, ...] = ()) -> Read[None]:
        """Drop superfluous brackets behind a call.

        White space, quotes and further brackets are dropped, too, where one of ``marks`` or the text's end follows.
        """
        yield from self._skip_pattern(_BRACKETS)
        self.commit()
        yield from self._skip_pattern(_LEFTOVER)
        if (yield from self.match_option(*marks)):
            self.commit()
        elif self.ends_in(marks):
            self.place = len(self.held)
            self.commit()
        self.reject()

    def _skip_pattern(self, pattern: re.Pattern[str]) -> Read[None]:
        """Consume what ``pattern`` matches, which may be nothing, in linear time."""
        while True:
            found = pattern.match(self.held, self.place)
            assert found is not None
            self.place = found.end()
            if self.place < len(self.held) or not (yield from self.wait_for_text()):
                return

    def pass_rest(self, make: Callable[[str], Event]) -> Read[None]:
        """Emit all that is left."""
        while True:
            yield make(self.reject(len(self.held)))
            if not (yield from self.wait_for_text()):
                return

    def _first_marker(self, markers: tuple[str, ...]) -> tuple[int, str]:
        """Find the first marker and its place; an empty one where there is none, at the place where one may begin."""
        found = min(((self.held.find(m), m) for m in markers if m in self.held), default=None)
        return (len(self.held) - self._begun_marker_length(markers), "") if found is None else found

    def _begun_marker_length(self, markers: tuple[str, ...]) -> int:
        """Length of the longest end of the held text that begins a marker."""
        longest = min(len(self.held), max(map(len, markers)) - 1)
        for length in range(longest, 0, -1):
            if any(marker.startswith(self.held[-length:]) for marker in markers):
                return length
        return 0
