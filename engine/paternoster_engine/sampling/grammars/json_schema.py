"""JSON schemas: their parts, and what llguidance takes too widely said once more in words that it follows."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

TIMES = ("time", "date-time")
NO_LEAP = {"pattern": "^[^:]*:[^:]*:[0-5]"}
"""Leap seconds, which it allows in every minute, are only in some by RFC 3339; no answer needs one."""
VALUES = ("const", "default", "enum", "examples")
"""Keywords with values in place of schemas."""
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords with schemas by names, which are no keywords whatever they are."""

OPTIONS: "JsonCompileOptions" = {
    "lenient": False,
    "coerce_one_of": False,
    "json_allow_general_unicode_escapes": True,
}
"""For llguidance, whatever a schema says to it: nothing that it does not know is left out; and a model that has begun
an escape with ``\\u`` may write any character so, not control characters alone.
"""


MAX_DIGITS = 18
"""Of a place in a list that a ``$ref`` leads to."""


def with_parts(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """``schema`` with each part of it as ``change`` makes it: schemas, and what keywords say besides but values."""

    def changed(key: str, value: Any) -> Any:
        if key in VALUES:
            return value
        if isinstance(value, list):
            return [change(item) for item in value]
        if key in NAMED and isinstance(value, Mapping):
            return {name: change(part) for name, part in value.items()}
        return change(value)

    return {key: changed(key, value) for key, value in schema.items()}


def narrowed(schema: Any) -> Any:
    """A schema, or part of one, in which times have no leap seconds."""
    if not isinstance(schema, Mapping):
        return schema
    made = with_parts(schema, narrowed)
    if schema.get("format") in TIMES and isinstance(made.get("allOf", []), list):
        made["allOf"] = [*made.get("allOf", []), NO_LEAP]
    return made


def with_options(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with :data:`OPTIONS`, where it stands within a grammar."""
    given = schema.get("x-guidance")
    return {**schema, "x-guidance": {**(given if isinstance(given, Mapping) else {}), **OPTIONS}}


def referred(reference: Any, root: Any) -> Any:
    """What ``reference``, a JSON pointer after ``#``, leads to; None where that is nothing within ``root``."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    found = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isascii() and key.isdigit() and len(key) <= MAX_DIGITS:
            found = found[int(key)] if int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found
