"""Whether an answer is within a call's arguments, where no stop text ends it: half a call is of no use to a client."""

from collections.abc import Iterable

from paternoster_engine.server.parsers.events import Arguments, CallBegin, Event, Reasoning


class OpenCall:
    """Follows the events of one answer; arguments are a JSON object, and over with the brace that closes it."""

    def __init__(self) -> None:
        self.open = False
        self._depth = 0
        self._quoted = self._escaped = False

    def follow_events(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case CallBegin():
                    self.open, self._depth, self._quoted, self._escaped = True, 0, False, False
                case Arguments(text):
                    self._read(text)
                case Reasoning():
                    pass
                case _:
                    # The parser has given the call up.
                    self.open = False

    def _read(self, text: str) -> None:
        for character in text:
            if self._quoted:
                self._quoted = self._escaped or character != '"'
                self._escaped = not self._escaped and character == "\\"
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "]}":
                self._depth -= 1
                self.open = self.open and self._depth > 0
