"""Arguments that are written as plain text, made what a tool's schema says they are."""

import ast
import json
import re
import warnings
from typing import Any, NoReturn

from paternoster_engine.server.parsers.events import Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import TYPES

MAX_VALUE = 2**14
"""Characters of a value in which a mark within one of its strings is no end."""
_PYTHON = {"True": True, "False": False, "None": None}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
"""Of JSON, to its end or that of the text: so it is looked at once, wherever it ends."""


def read_value(reader: Reader, markers: tuple[str, ...], types: frozenset[str]) -> Read[str | None]:
    """The text of an argument up to the first marker that is in no string of its JSON; None without one."""
    start = reader.place
    text = yield from reader.until(markers)
    begins = {"[": "array", "{": "object"}.get("" if text is None else text.lstrip()[:1])
    if text is None or begins not in types:
        return text
    first, found = reader.place, text
    while reader.place - start < MAX_VALUE and any(not string[1] for string in _STRING.finditer(found)):
        reader.place += 1
        if (yield from reader.until(markers)) is None:
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
    value = _literal(solid)
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


def _literal(text: str) -> Any:
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
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not of JSON")


def _from_python(text: str) -> Any:
    if text[:1] not in ("[", "{"):
        raise ValueError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(text)
    if not isinstance(value, list | dict):
        raise ValueError
    # What cannot be said in JSON: lone surrogates, infinities, keys that are no text.
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value
