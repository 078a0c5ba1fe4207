"""What stands before a call's arguments is looked at once, however many tokens it comes in."""

import re

import pytest

from paternoster_engine.server.parsers.calls import json_calls
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat

LENGTH = 20_000
PIECE = 4
"""Characters of a token."""


class CountingPattern:
    """Counts the characters that its matches look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.looked_at = 0

    def match(self, text: str, place: int) -> re.Match[str] | None:
        found = self._pattern.match(text, place)
        self.looked_at += (len(text) if found is None else found.end()) - place
        return found


@pytest.fixture
def patterns(monkeypatch: pytest.MonkeyPatch) -> list[CountingPattern]:
    counting = []
    for name, pattern in list(vars(json_calls).items()):
        if isinstance(pattern, re.Pattern):
            counting.append(CountingPattern(pattern))
            monkeypatch.setattr(json_calls, name, counting[-1])
    return counting


def _events(text: str, length: int = PIECE) -> list[Event]:
    parser = AnswerFormat(TOOL_FORMATS["hermes"]).build_parser({"f": {}})
    pieces = [text[start : start + length] for start in range(0, len(text), length)]
    return join_events([*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()])


VALUES = {
    "string": '"' + '\\"x\\\\' * (LENGTH // 5) + '"',
    "number": "1" * LENGTH,
    "list": '[["' + "x" * LENGTH + '"]]',
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "call",
    [
        '"arguments": VALUE, "name": "f"',
        '"other": VALUE, "name": "f", "arguments": {"a": 1}',
        '"name": "f", "arguments": {"a": 1}, "other": VALUE',
    ],
)
def test_a_long_value(patterns: list[CountingPattern], value: str, call: str) -> None:
    text = f"<tool_call>{{{call.replace('VALUE', VALUES[value])}}}</tool_call>"
    events = _events(text)
    assert sum(pattern.looked_at for pattern in patterns) < 3 * len(text)
    assert events == _events(text, len(text))
    assert ("arguments" in call[:11] and value != "string") or events[0] == CallBegin("f")


def test_a_string_that_never_ends_is_text_after_the_call(patterns: list[CountingPattern]) -> None:
    rest = '"' + "x" * LENGTH + "\\"
    events = _events(f'<tool_call>{{"name": "f", "arguments": {{}}, "other": {rest}')
    assert events == [CallBegin("f"), Arguments("{}"), Content(rest)]
    assert sum(pattern.looked_at for pattern in patterns) < 3 * LENGTH
