"""JSON schemas: their parts, targets of pointers, and the options with which llguidance compiles them."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

VALUE_KEYWORDS = ("const", "default", "enum", "examples")
"""Keywords with values in place of schemas."""
NAMED_KEYWORDS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords with schemas by names, which are no keywords whatever they are."""

WHITE_SPACE = r"[ \t\r\n]{1,32}"
"""White space between two tokens of JSON: 32 characters are nearly eight levels indented by four. Without a bound some
models write blanks until ``max_tokens``. As two alternatives, a blank or an indented line, it would cost masks several
times the parser's items.
"""
COMPILE_OPTIONS: "JsonCompileOptions" = {
    "whitespace_pattern": WHITE_SPACE,
    "lenient": False,
    "coerce_one_of": False,
    "json_allow_general_unicode_escapes": True,
}
"""For llguidance, whatever a schema says to it: nothing that it does not know is left out; and a model that has begun
an escape with ``\\u`` may write any character so, not control characters alone.
"""
COMPACT_OPTIONS: "JsonCompileOptions" = {
    "whitespace_flexible": False,
    "lenient": False,
    "coerce_one_of": False,
    "json_allow_general_unicode_escapes": True,
}
"""Compile options without white space between tokens."""


MAX_DIGITS = 18
"""Digits of a place in a list that a ``$ref`` leads to."""


def with_parts(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """``schema`` with each part of it as ``change`` makes it: schemas, and what keywords say besides but values."""

    def rewrite_value(key: str, value: Any) -> Any:
        if key in VALUE_KEYWORDS:
            return value
        if isinstance(value, list):
            return [change(item) for item in value]
        if key in NAMED_KEYWORDS and isinstance(value, Mapping):
            return {name: change(part) for name, part in value.items()}
        return change(value)

    return {key: rewrite_value(key, value) for key, value in schema.items()}


def parts_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values of all keywords that may be or contain schemas, items of lists and mappings one by one."""
    for key, value in schema.items():
        if key in VALUE_KEYWORDS:
            continue
        if isinstance(value, list):
            yield from value
        elif key in NAMED_KEYWORDS and isinstance(value, Mapping):
            yield from value.values()
        else:
            yield value


def with_options(schema: Any, *, compact: bool = False) -> Any:
    """Add :data:`COMPILE_OPTIONS`, or :data:`COMPACT_OPTIONS`, to a schema that stands within a grammar."""
    keywords = schema if isinstance(schema, Mapping) else ({} if schema else {"anyOf": []})
    return {**keywords, "x-guidance": COMPACT_OPTIONS if compact else COMPILE_OPTIONS}


def resolve_reference(reference: Any, root: Any) -> Any:
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
