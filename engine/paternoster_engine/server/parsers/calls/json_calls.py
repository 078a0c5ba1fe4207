"""Calls that are JSON objects, ``{"name": "f", "arguments": {...}}``, which most formats have in common."""

import json
import re
from collections.abc import Collection

from paternoster_engine.server.parsers.events import Arguments, Call, Read
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
    if (yield from reader.peek_solid()) != "[":
        return (yield from _read_call(reader, names, end))
    reader.place += 1
    if not (yield from _read_call(reader, names, end)):
        return False
    while (yield from reader.peek_solid()) == ",":
        reader.place += 1
        if not (yield from _read_call(reader, names, end)):
            reader.reject()
            return True
    if (yield from reader.peek()) == "]":
        reader.place += 1
        reader.commit()
    return True


def _read_call(reader: Reader, names: Collection[str], end: str) -> Read[bool]:
    """A call is one as soon as it names a function there is and its arguments begin: from then on they are told."""
    name, arguments, told = None, "{}", False
    if (yield from reader.peek_solid()) != "{":
        return False
    reader.place += 1
    while (character := (yield from reader.peek_solid())) != "}":
        if character == ",":
            reader.place += 1
            continue
        key = yield from _string(reader)
        if key is None or (yield from reader.peek_solid()) != ":":
            return told
        reader.place += 1
        begins = yield from reader.peek_solid()
        if told:
            yield from _value(reader)
        elif key == "name":
            name = yield from _string(reader)
            if name not in names:
                return False
        elif key in ARGUMENTS and begins == "{" and name is not None:
            reader.commit()
            yield Call(name)
            if not (yield from pass_object(reader, end)):
                return True
            told = True
        elif key in ARGUMENTS:
            value = _as_arguments((yield from _value(reader)))
            if value is None:
                return False
            arguments = value
        elif (yield from _value(reader)) is None:
            return False
    reader.place += 1
    if not told:
        if name is None:
            return False
        yield Call(name)
        yield Arguments(arguments)
    reader.commit()
    return True


def pass_object(reader: Reader, end: str = "") -> Read[bool]:
    """Tell a JSON object as arguments while it is written; False where the text or ``end`` comes before its end."""
    depth, in_string, escaped = 0, False, False
    while True:
        while reader.place < len(reader.held):
            character = reader.held[reader.place]
            if in_string:
                in_string = escaped or character != '"'
                escaped = not escaped and character == "\\"
            elif character == '"':
                in_string = True
            elif character in "{[":
                depth += 1
            elif character in "}]":
                depth -= 1
                if depth == 0:
                    reader.place += 1
                    yield Arguments(reader.commit())
                    return True
            elif end and character == end[0]:
                yield Arguments(reader.commit())
                if (yield from reader.take(end)):
                    reader.place = 0
                    return False
            reader.place += 1
        yield Arguments(reader.commit())
        if not (yield from reader.more()):
            return False


def _value(reader: Reader) -> Read[str | None]:
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
        if reader.held[place : place + 1] not in ("", "\\") or not (yield from reader.more()):
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


def _string(reader: Reader) -> Read[str | None]:
    if (yield from reader.peek_solid()) != '"':
        return None
    text = yield from reader.match(_STRING, MAX_NAME)
    return None if text is None else _decoded(text)


def _decoded(text: str) -> str | None:
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
    return _decoded(text) if text.startswith('"') else None
