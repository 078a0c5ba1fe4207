"""Calls that are JSON objects, ``{"name": "f", "arguments": {...}}``, which most formats have in common."""

import json
import re
from collections.abc import Collection

from paternoster_engine.server.parsers.calls.strings import pass_string
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Read
from paternoster_engine.server.parsers.reader import Reader

ARGUMENTS = ("arguments", "parameters")
MAX_NAME = 1024
"""Characters of a name of a field or a function, escapes included; longer ones are no names."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_IN_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_SCALAR = re.compile(r"[^\s,{}\[\]\"]*")


def read_calls(reader: Reader, names: Collection[str], end: str = "") -> Read[bool]:
    """One call, or a list of calls; False, and nothing is committed, where the text is not that.

    ``names``: of the functions there are. ``end``: a text that ends the arguments wherever it stands outside of their
    strings.
    """
    reader.starved = False
    if (yield from reader.peek_solid()) != "[":
        return (yield from _read_call(reader, names, end))
    reader.place += 1
    if not (yield from _read_call(reader, names, end)):
        return False
    while (yield from _next_in_list(reader)) == ",":
        reader.place += 1
        if not (yield from _read_call(reader, names, end)):
            reader.reject()
            return True
    if (yield from reader.peek()) == "]":
        reader.place += 1
        reader.commit()
    return True


def _next_in_list(reader: Reader) -> Read[str]:
    """Skip superfluous braces behind a call of a list; returns the next character."""
    while (following := (yield from reader.peek_solid())) == "}":
        reader.place += 1
    return following


def _read_call(reader: Reader, names: Collection[str], end: str) -> Read[bool]:
    """Read one call, and emit its arguments while they come, once it names a known function and the arguments begin.

    Where the text ends before the arguments, the call has only its name.
    """
    call = _JsonCall(names, end)
    if (yield from call.read(reader)):
        return True
    if call.name is None or not reader.starved:
        return False
    yield CallBegin(call.name)
    yield Arguments(call.arguments or "")
    reader.reject(len(reader.held))
    return True


class _JsonCall:
    """The state of one call while it is read."""

    def __init__(self, names: Collection[str], end: str) -> None:
        self._names = names
        self._end = end
        self.name: str | None = None
        self.arguments: str | None = None
        """Where they came before the name, or are no object."""

    def read(self, reader: Reader) -> Read[bool]:
        """Whether it is a call whose arguments have begun, or that has none."""
        begun = False
        if (yield from reader.peek_solid()) != "{":
            return False
        reader.place += 1
        while (character := (yield from reader.peek_solid())) != "}":
            if character == ",":
                reader.place += 1
                continue
            key = yield from _read_string(reader)
            if key is None or (yield from reader.peek_solid()) != ":":
                return begun
            reader.place += 1
            begins = yield from reader.peek_solid()
            if begun:
                yield from _read_value(reader)
            elif key == "name":
                name = yield from _read_string(reader)
                if name not in self._names:
                    return False
                self.name = name
            elif key in ARGUMENTS and begins in ("{", '"') and self.name is not None:
                reader.commit()
                yield CallBegin(self.name)
                begun = True
                if not (yield from pass_object(reader, self._end) if begins == "{" else _pass_text(reader)):
                    return True
            elif key in ARGUMENTS:
                self.arguments = _as_arguments((yield from _read_value(reader)))
                if self.arguments is None:
                    return False
            elif (yield from _read_value(reader)) is None:
                return False
        reader.place += 1
        if not begun:
            if self.name is None:
                return False
            yield CallBegin(self.name)
            yield Arguments(self.arguments or "{}")
        reader.commit()
        return True


class JsonValue:
    """Follows an object or a list to its end; each character is looked at once."""

    def __init__(self) -> None:
        self._depth, self._in_string, self._escaped = 0, False, False

    def find_end(self, text: str, place: int, stop: str = "") -> int:
        """Where it ends in ``text``, or ``stop`` is in none of its strings, from ``place`` on; -1 where neither is."""
        for at in range(place, len(text)):
            character = text[at]
            if self._in_string:
                self._in_string = self._escaped or character != '"'
                self._escaped = not self._escaped and character == "\\"
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at
            elif character == stop:
                return at
        return -1


def pass_object(reader: Reader, end: str = "") -> Read[bool]:
    """Tell a JSON object as arguments while it is written; False where the text or ``end`` comes before its end."""
    value = JsonValue()
    while True:
        while (place := value.find_end(reader.held, reader.place, end[:1])) >= 0:
            reader.place = place
            if reader.held[place] in "}]":
                reader.place += 1
                yield Arguments(reader.commit())
                return True
            yield Arguments(reader.commit())
            if (yield from reader.match_option(end)):
                reader.place = 0
                return False
            reader.place += 1
        reader.place = len(reader.held)
        yield Arguments(reader.commit())
        if not (yield from reader.wait_for_text()):
            return False


def _pass_text(reader: Reader) -> Read[bool]:
    """Give away arguments that are JSON within a string; False where the text ends before the string does."""
    reader.place += 1
    reader.commit()
    return (yield from pass_string(reader, Arguments, '"'))


def _read_value(reader: Reader) -> Read[str | None]:
    """The text of any value; None where there is none."""
    begins = yield from reader.peek_solid()
    start = reader.place
    if begins == '"':
        if not (yield from _skip_string(reader)):
            return None
    elif begins in ("{", "["):
        if not (yield from _skip_nested(reader)):
            return None
    else:
        reader.place = yield from _end_of(reader, _SCALAR, start)
    return reader.held[start : reader.place] or None


def _skip_string(reader: Reader) -> Read[bool]:
    """False, and nothing is taken, where the text ends within it."""
    end = yield from _end_of(reader, _IN_STRING, reader.place + 1)
    if end == len(reader.held) or reader.held[end] != '"':
        return False
    reader.place = end + 1
    return True


def _end_of(reader: Reader, pattern: re.Pattern[str], place: int) -> Read[int]:
    """Where what ``pattern`` matches ends, which begins at ``place``; each character is looked at once.

    ``pattern``: matches any beginning of that, but for a backslash without what it stands before.
    """
    while True:
        found = pattern.match(reader.held, place)
        assert found is not None
        place = found.end()
        if reader.held[place : place + 1] not in ("", "\\") or not (yield from reader.wait_for_text()):
            return place


def _skip_nested(reader: Reader) -> Read[bool]:
    depth = 0
    while (character := (yield from reader.peek())) != "":
        if character == '"':
            if not (yield from _skip_string(reader)):
                return False
            continue
        reader.place += 1
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return True
    return False


def _read_string(reader: Reader) -> Read[str | None]:
    if (yield from reader.peek_solid()) != '"':
        return None
    text = yield from reader.match_pattern(_STRING, MAX_NAME)
    return None if text is None else _decode_string(text)


def _decode_string(text: str) -> str | None:
    """What a JSON string says; None for what is none, and for lone surrogates, which nothing can send."""
    try:
        value: str = json.loads(text, strict=False)
        value.encode()
    except ValueError:
        return None
    return value


def _as_arguments(text: str | None) -> str | None:
    """Arguments that came before the name, as JSON within a string, or as null; None for other values."""
    if text is None or text.startswith("{"):
        return text
    if text == "null":
        return "{}"
    return _decode_string(text) if text.startswith('"') else None
