"""One answer taken apart: the plain one and the streamed one by the same generator."""

import json
import re
from collections.abc import Callable

from paternoster_engine.server.parsers.events import Arguments, CallBegin, Event, Read, join_events
from paternoster_engine.server.parsers.reader import Reader

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")


class AnswerParser:
    """Events joined are the same wherever the text was cut."""

    def __init__(self, read: Callable[[Reader], Read[None]], shown: frozenset[int] = frozenset()) -> None:
        """``shown``: control tokens whose text ``read`` looks for, though they are none of the answer's."""
        self.shown = shown
        self._reader = Reader()
        self._arguments = EscapedStrings()
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
            if isinstance(event, CallBegin):
                self._arguments = EscapedStrings()
            events.append(Arguments(self._arguments.add_text(event.text)) if isinstance(event, Arguments) else event)
        return join_events(events)


class EscapedStrings:
    """JSON in pieces, with the escapes that a model forgot: of control characters, and of backslashes that begin none.

    Models write line ends, tabs, ``\\d`` and ``C:\\path`` into strings as they are. What is JSON stays as it is; the
    beginning of an escape is held back.
    """

    def __init__(self) -> None:
        self._in_string = False
        self._held = ""

    def add_text(self, text: str) -> str:
        text, self._held = self._held + text, ""
        passed: list[str] = []
        place = 0
        while place < len(text):
            if not self._in_string:
                end = text.find('"', place) + 1
                self._in_string = end > 0
                passed.append(text[place : end or len(text)])
                place = end or len(text)
                continue
            plain = _PLAIN.match(text, place)
            assert plain is not None
            passed.append(plain[0])
            place = plain.end()
            if place == len(text):
                break
            character = text[place]
            if character == "\\" and _ESCAPE_BEGUN.fullmatch(text, place):
                self._held = text[place:]
                break
            escape = _ESCAPE.match(text, place)
            if escape is not None:
                passed.append(escape[0])
                place = escape.end()
                continue
            self._in_string = character != '"'
            passed.append(character if character == '"' else json.dumps(character)[1:-1])
            place += 1
        return "".join(passed)
