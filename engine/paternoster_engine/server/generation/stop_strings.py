"""Where a text ends: at the first stop string, wherever the pieces it comes in are cut."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on until a stop string is complete; holds back only what may be the beginning of one.

    The match that ends first wins, and of those that end together the longest, so that the result does not depend on
    how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        """``include``: let the stop string itself be seen at the end of the text."""
        self._stops = stops
        self._include = include
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text."""

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def add_text(self, text: str) -> str:
        """What may be shown now; sets ``matched`` when it ends the text."""
        self._held += text
        match = self._first_match()
        if match is not None:
            start, end = match
            self.matched = self._held[start:end]
            return self._release_text(end if self._include else start)
        return self._release_text(len(self._held) - self._partial_match())

    def flush(self) -> str:
        """The text ended without a stop string: what was held back."""
        return self._release_text(len(self._held))

    def _release_text(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        return shown

    def _first_match(self) -> tuple[int, int] | None:
        """Start and end of the match that ends first."""
        found = [(start, start + len(stop)) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        return min(found, key=lambda match: (match[1], match[0]), default=None)

    def _partial_match(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = min(len(self._held), max((len(stop) - 1 for stop in self._stops), default=0))
        for length in range(longest, 0, -1):
            end = self._held[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
