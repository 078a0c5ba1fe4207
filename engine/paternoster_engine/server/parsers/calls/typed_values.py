"""Arguments that are written as plain text, made what a tool's schema says they are."""

import ast
import json
import re
import warnings
from typing import Any, NoReturn

from paternoster_engine.server.parsers.events import Arguments, Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import TYPES, ArgumentTypes

MAX_VALUE = 2**14
"""Characters of a value in which a mark within one of its strings is no end."""
_DIGITS = tuple("0123456789")
_BEGINNINGS = {
    "null": ("null", "None"),
    "boolean": ("true", "false", "True", "False"),
    "integer": (*_DIGITS, *(f"-{digit}" for digit in _DIGITS)),
    "number": (*_DIGITS, *(f"-{digit}" for digit in _DIGITS)),
    "array": ("[",),
    "object": ("{",),
}
"""Type -> how its values begin, behind white space, as :func:`json_of` reads them; others are strings."""
_PYTHON = {"True": True, "False": False, "None": None}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
"""String of JSON, to its end or that of the text: so it is looked at once, wherever it ends."""


def pass_named(
    reader: Reader,
    name: str,
    seen: set[str],
    markers: tuple[str, ...],
    of_tool: ArgumentTypes,
    *,
    line_breaks: bool = False,
) -> Read[bool]:
    """Emit an argument up to the first marker, with its name, as JSON of its types.

    Strings are emitted while they come, other values when complete. Returns False where the answer ends without a
    marker: then only a string has been emitted, as far as it was written. ``seen``: names of the call's arguments so
    far; a second value of a name is dropped. ``line_breaks``: whether one line break at each end is not part of the
    value.
    """
    types = of_tool.of_argument(name)
    if name in seen:
        return (yield from read_value(reader, markers, types)) is not None
    before = f"{', ' if seen else ''}{json.dumps(name, ensure_ascii=False)}: "
    seen.add(name)
    if "string" in types and (yield from _is_text(reader, types - {"string"})):
        if line_breaks:
            yield from reader.match_option("\n")
            markers = (*markers, *(f"\n{marker}" for marker in markers))
        reader.commit()
        yield Arguments(f'{before}"')
        if not (yield from reader.pass_value(markers, _escape_text)):
            return False
        yield Arguments('"')
        if line_breaks:
            yield from reader.match_option("\n")
        return True
    text = yield from read_value(reader, markers, types)
    if text is None:
        return False
    yield Arguments(before + json_of(text.removeprefix("\n").removesuffix("\n") if line_breaks else text, types))
    return True


def _is_text(reader: Reader, others: frozenset[str]) -> Read[bool]:
    """Whether the next value has none of the ``others`` types; reads only as much of it as decides that."""
    begins = tuple(beginning for name in others for beginning in _BEGINNINGS.get(name, ()))
    if not begins:
        return True
    start = reader.place
    yield from reader.peek_solid()
    solid = reader.place
    other = None
    while other is None:
        if reader.held.startswith(begins, solid):
            other = True
        elif not any(beginning.startswith(reader.held[solid:]) for beginning in begins):
            other = False
        elif not (yield from reader.wait_for_text()):
            other = True
    reader.place = start
    return not other


def _escape_text(text: str) -> Arguments:
    return Arguments(json.dumps(text, ensure_ascii=False)[1:-1])


def read_value(reader: Reader, markers: tuple[str, ...], types: frozenset[str]) -> Read[str | None]:
    """The text of an argument up to the first marker that is in no string of its JSON; None without one."""
    start = reader.place
    text = yield from reader.read_until(markers)
    begins = {"[": "array", "{": "object"}.get("" if text is None else text.lstrip()[:1])
    if text is None or begins not in types:
        return text
    first, found = reader.place, text
    while reader.place - start < MAX_VALUE and any(not string[1] for string in _STRING.finditer(found)):
        reader.place += 1
        if (yield from reader.read_until(markers)) is None:
            break
        found = reader.held[start : reader.place]
    if not is_json(found):
        reader.place = first
    return reader.held[start : reader.place]


def json_of(text: str, types: frozenset[str]) -> str:
    """An argument of one of ``types``, as JSON; text where it is nothing else."""
    if types == {"string"}:
        return json.dumps(text, ensure_ascii=False)
    solid = text.strip()
    value = _parse_literal(solid)
    kinds = tuple(kind for name in types - {"string"} for kind in TYPES[name])
    if isinstance(value, bool) and "boolean" not in types:
        kinds = ()
    if isinstance(value, kinds):
        return solid if is_json(solid) else json.dumps(value, ensure_ascii=False)
    if "integer" in types and isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    return json.dumps(text, ensure_ascii=False)


def is_json(text: str) -> bool:
    try:
        _from_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_literal(text: str) -> Any:
    """What JSON says, or Python, which models write as well; the text where it is neither."""
    if text in _PYTHON:
        return _PYTHON[text]
    for read in (_from_json, _from_python):
        try:
            return read(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def _from_json(text: str) -> Any:
    return json.loads(text, parse_constant=_reject_constant)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not of JSON")


def _from_python(text: str) -> Any:
    if text[:1] not in ("[", "{"):
        raise ValueError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(text)
    if not isinstance(value, list | dict):
        raise ValueError
    # What JSON cannot express: lone surrogates, infinities, keys that are no text.
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value
