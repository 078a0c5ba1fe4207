"""One answer taken apart: the plain one and the streamed one by the same generator."""

from collections.abc import Callable

from paternoster_engine.server.parsers.events import Event, Read, join_events
from paternoster_engine.server.parsers.reader import Reader


class AnswerParser:
    """Events joined are the same wherever the text was cut."""

    def __init__(self, read: Callable[[Reader], Read[None]], shown: frozenset[int] = frozenset()) -> None:
        """``shown``: control tokens whose text ``read`` looks for, though they are none of the answer's."""
        self.shown = shown
        self._reader = Reader()
        self._events = read(self._reader)
        self._run()

    @property
    def reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        return self._reader.reasoning

    def parse_piece(self, text: str) -> list[Event]:
        """What is known with ``text``."""
        self._reader.held += text
        return self._run()

    def finish(self) -> list[Event]:
        """What was held back; no more text comes."""
        self._reader.ended = True
        return self._run()

    def _run(self) -> list[Event]:
        events: list[Event] = []
        for event in self._events:
            if event is None:
                break
            events.append(event)
        return join_events(events)
