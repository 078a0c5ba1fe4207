"""Texts that a schema allows, as a terminal of Lark: for arguments that are written without quotes and escapes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.server.parsers.arguments.formats import FORMATS
from paternoster_engine.server.parsers.arguments.patterns import ANYTHING, whole
from paternoster_engine.server.parsers.schemas import MAX_DEPTH, referred

ANY = f"/{ANYTHING}/"
_LENGTH = "(?s:.{"
_UNSUPPORTED = ("not", "if", "$dynamicRef", "$recursiveRef")


def text_of(said: Any, root: Mapping[str, Any], left: int = MAX_DEPTH) -> str | None:
    """None where no text is of ``said``, a part of ``root``. Raises :class:`GrammarError` for what is not supported."""
    if left == 0:
        raise GrammarError(f"a text's schemas lead from one to another more than {MAX_DEPTH} times")
    if not isinstance(said, Mapping):
        return None if said is False else ANY
    for key in _UNSUPPORTED:
        if key in said:
            raise GrammarError(f"{key!r} is not supported for an argument that is written as plain text")
    parts = list(_parts(said, root, left))
    if None in parts:
        return None
    return " & ".join(part for part in parts if part and part != ANY) or ANY


def _parts(said: Mapping[str, Any], root: Mapping[str, Any], left: int) -> Iterator[str | None]:
    """A text is of each."""
    types = said.get("type", "string")
    if types != "string" and "string" not in (types if isinstance(types, list) else ()):
        yield None
    for values in (said.get("enum"), [said["const"]] if "const" in said else None):
        if isinstance(values, list):
            yield _either(json.dumps(value) for value in values if isinstance(value, str))
    least, most = said.get("minLength", 0), said.get("maxLength", "")
    if least or most != "":
        yield regex(f"{_LENGTH}{int(least)},{most if most == '' else int(most)}}})")
    if "pattern" in said:
        yield regex(whole(str(said["pattern"])))
    if "format" in said:
        if said["format"] not in FORMATS:
            raise GrammarError(f"format {said['format']!r} is not supported for an argument that is plain text")
        yield regex(FORMATS[said["format"]])
    if isinstance(said.get("anyOf"), list):
        yield _either(text_of(option, root, left - 1) for option in said["anyOf"])
    if isinstance(said.get("oneOf"), list):
        options = [option for option in said["oneOf"] if text_of(option, root, left - 1) is not None]
        if len(options) > 1:
            raise GrammarError("'oneOf' with several options that are texts is not supported for an argument that is "
                               "written as plain text")  # fmt: skip
        yield _either(text_of(option, root, left - 1) for option in options)
    if isinstance(said.get("allOf"), list):
        for part in said["allOf"]:
            yield text_of(part, root, left - 1)
    if "$ref" in said:
        target = referred(said["$ref"], root)
        if target is None:
            raise GrammarError(f"$ref {said['$ref']!r} leads to nothing")
        yield text_of(target, root, left - 1)


def _either(options: Iterable[str | None]) -> str | None:
    some = [option for option in options if option is not None]
    return None if not some else ANY if ANY in some else f"({' | '.join(f'({option})' for option in some)})"


def without(marks: Iterable[str], text: str) -> str:
    """Texts that have none of ``marks`` within, which begin with ``<``.

    ``text``: what else is said of them. Where that is a length they have not the marks' first two characters either:
    whether a mark follows within a length takes llguidance more than its limits allow from 250 characters on.
    """
    if _LENGTH in text:
        seconds = "".join(re.escape(second) for second in sorted({mark[1] for mark in marks}))
        return regex(f"(?:[^<]|<+[^<{seconds}])*<*")
    any_of = "|".join(map(re.escape, marks))
    return "~" + regex(f"{ANYTHING}(?:{any_of}){ANYTHING}")


def regex(expression: str) -> str:
    """As a terminal."""

    def escaped(found: re.Match[str]) -> str:
        return {"/": r"\/", "\n": r"\n", "\r": r"\r"}.get(found[0], found[0])

    return "/" + re.sub(r"\\.|[/\n\r]", escaped, expression, flags=re.DOTALL) + "/"
