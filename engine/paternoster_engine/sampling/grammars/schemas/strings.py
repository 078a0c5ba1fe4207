"""Keywords of strings."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.formats import ALIASES, FORMATS, OF_ANY_TEXT, OF_ENGINE, OF_NUMBERS
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart
from paternoster_engine.sampling.grammars.schemas.patterns import UnsupportedPattern, without_look_around


def rewrite_format(part: SchemaPart, value: Any) -> None:
    """Rewrite ``format`` as a pattern, or, for a format of numbers, as bounds."""
    name = ALIASES.get(value, value) if isinstance(value, str) else ""
    if name in OF_NUMBERS:
        least, most = OF_NUMBERS[name]
        part.conjuncts.append({"minimum": least, "maximum": most})
    elif name in OF_ENGINE:
        part.made["format"] = name
    elif name in FORMATS:
        part.add_pattern(f"^(?:{FORMATS[name]})$")
    elif name not in OF_ANY_TEXT and part.may_be("string"):
        part.report_unenforced("format", asserts=False)


def rewrite_content_encoding(part: SchemaPart, value: Any) -> None:
    """Rewrite ``contentEncoding`` as the format of the same name."""
    if (
        isinstance(value, str)
        and not {"format", "pattern"} & part.schema.keys()
        and ALIASES.get(value, value) in FORMATS
    ):
        rewrite_format(part, value)


def rewrite_pattern(part: SchemaPart, value: Any) -> None:
    """Rewrite ``pattern`` without look-around."""
    if not isinstance(value, str):
        part.made["pattern"] = value
        return
    try:
        options = without_look_around(value)
    except UnsupportedPattern:
        part.report_unenforced("pattern")
        return
    if not all(
        part.rewriting.compiles_schema({"type": "string", "pattern": one}) for option in options for one in option
    ):
        part.report_unenforced("pattern")
    elif len(options) == 1:
        for one in options[0]:
            part.add_pattern(one)
    else:
        part.conjuncts.append({"anyOf": [{"allOf": [{"pattern": one} for one in option]} for option in options]})


HANDLERS: Mapping[str, Callable[[SchemaPart, Any], None]] = {
    "format": rewrite_format,
    "contentEncoding": rewrite_content_encoding,
    "pattern": rewrite_pattern,
}
