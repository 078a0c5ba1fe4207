"""Texts that a schema allows, as a terminal of Lark: for arguments that are written without quotes and escapes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.limits import MAX_BYTES
from paternoster_engine.sampling.grammars.schemas.formats import FORMATS
from paternoster_engine.sampling.grammars.schemas.patterns import ANYTHING
from paternoster_engine.server.parsers.arguments.patterns import match_whole
from paternoster_engine.server.parsers.schemas import MAX_DEPTH, target_of

ANY = f"/{ANYTHING}/"
_LENGTH = "(?s:.{"
MOST_MADE = 4 * MAX_BYTES
"""Characters of all that is made for the texts of one tool's arguments."""
_UNSUPPORTED = ("not", "if", "$dynamicRef", "$recursiveRef")


class PlainTexts:
    """Texts of a tool's arguments. Each part of their schemas is looked at once: options may share what follows."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._patterns: dict[int, str | None] = {}
        self._made = 0

    def grammar_of(self, schema: Any, left: int = MAX_DEPTH) -> str | None:
        """None where no text is of ``schema``, a part of the root.

        Raises :class:`GrammarError` for what is not supported, and for what comes to more than :data:`MOST_MADE`.
        """
        if left == 0:
            raise GrammarError(f"a text's schemas lead from one to another more than {MAX_DEPTH} times")
        if not isinstance(schema, Mapping):
            return None if schema is False else ANY
        if id(schema) not in self._patterns:
            self._patterns[id(schema)] = self._pattern_of_text(schema, left)
        return self._patterns[id(schema)]

    def _pattern_of_text(self, schema: Mapping[str, Any], left: int) -> str | None:
        for key in _UNSUPPORTED:
            if key in schema:
                raise GrammarError(f"{key!r} is not supported for an argument that is written as plain text")
        parts = []
        for part in self._patterns_of_keywords(schema, left):
            if part is None:
                return None
            self._made += len(part)
            if self._made > MOST_MADE:
                raise GrammarError(f"what its texts may be takes more than {MOST_MADE} bytes to say")
            parts.append(part)
        return " & ".join(part for part in parts if part and part != ANY) or ANY

    def _patterns_of_keywords(self, schema: Mapping[str, Any], left: int) -> Iterator[str | None]:
        """A text is of each."""
        types = schema.get("type", "string")
        if types != "string" and "string" not in (types if isinstance(types, list) else ()):
            yield None
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(values, list):
                yield _join_options(json.dumps(value) for value in values if isinstance(value, str))
        least, most = _length_limit(schema, "minLength"), _length_limit(schema, "maxLength")
        if least or most is not None:
            yield regex_terminal(f"{_LENGTH}{least or 0},{'' if most is None else most}}})")
        if "pattern" in schema:
            yield regex_terminal(match_whole(_text_at(schema, "pattern")))
        if "format" in schema:
            if _text_at(schema, "format") not in FORMATS:
                raise GrammarError(f"format {schema['format']!r} is not supported for an argument that is plain text")
            yield regex_terminal(FORMATS[schema["format"]])
        if isinstance(schema.get("anyOf"), list):
            yield _join_options(self.grammar_of(option, left - 1) for option in schema["anyOf"])
        if isinstance(schema.get("oneOf"), list):
            options = [text for option in schema["oneOf"] if (text := self.grammar_of(option, left - 1)) is not None]
            if len(options) > 1:
                raise GrammarError("'oneOf' with several options that are texts is not supported for an argument that "
                                   "is written as plain text")  # fmt: skip
            yield _join_options(options)
        if isinstance(schema.get("allOf"), list):
            for part in schema["allOf"]:
                yield self.grammar_of(part, left - 1)
        if "$ref" in schema:
            target = target_of(schema["$ref"], self._root)
            if target is None:
                raise GrammarError(f"$ref {schema['$ref']!r:.60} leads to nothing")
            yield self.grammar_of(target, left - 1)


def _length_limit(schema: Mapping[str, Any], key: str) -> int | None:
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < 2**31) or value % 1:
        raise GrammarError(f"{key!r} is {value!r:.60}: must be a whole number from 0 to {2**31 - 1}")
    return int(value)


def _text_at(schema: Mapping[str, Any], key: str) -> str:
    value = schema[key]
    if not isinstance(value, str):
        raise GrammarError(f"{key!r} is {value!r:.60}: must be a text")
    return value


def _join_options(options: Iterable[str | None]) -> str | None:
    some = list(dict.fromkeys(option for option in options if option is not None))
    return None if not some else ANY if ANY in some else f"({' | '.join(f'({option})' for option in some)})"


def exclude_marks(marks: Iterable[str], text: str) -> str:
    """Texts that have none of ``marks`` within, which begin with ``<``.

    ``text``: what their schema demands besides. Where that is a length they have not the marks' first two characters
    either: whether a mark follows within a length takes llguidance more than its limits allow from 250 characters on.
    """
    if _LENGTH in text:
        seconds = "".join(re.escape(second) for second in sorted({marker[1] for marker in marks}))
        return regex_terminal(f"(?:[^<]|<+[^<{seconds}])*<*")
    any_of = "|".join(map(re.escape, marks))
    return "~" + regex_terminal(f"{ANYTHING}(?:{any_of}){ANYTHING}")


def regex_terminal(expression: str) -> str:
    """Write a terminal of a grammar."""

    def escape_match(found: re.Match[str]) -> str:
        return {"/": r"\/", "\n": r"\n", "\r": r"\r"}.get(found[0], found[0])

    return "/" + re.sub(r"\\.|[/\n\r]", escape_match, expression, flags=re.DOTALL) + "/"
