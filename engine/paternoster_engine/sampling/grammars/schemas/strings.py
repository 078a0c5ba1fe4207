"""Keywords of texts."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.formats import ALIASES, FORMATS, OF_ANY_TEXT, OF_ENGINE, OF_NUMBERS
from paternoster_engine.sampling.grammars.schemas.part import Part
from paternoster_engine.sampling.grammars.schemas.patterns import Unsupported, without_look_around


def formatted(part: Part, value: Any) -> None:
    """``format``; of numbers as well."""
    name = ALIASES.get(value, value) if isinstance(value, str) else ""
    if name in OF_NUMBERS:
        least, most = OF_NUMBERS[name]
        part.conjuncts.append({"minimum": least, "maximum": most})
    elif name in OF_ENGINE:
        part.made["format"] = name
    elif name in FORMATS:
        part.add_pattern(f"^(?:{FORMATS[name]})$")
    elif name not in OF_ANY_TEXT and part.may_be("string"):
        part.tell("format", asserts=False)


def encoded(part: Part, value: Any) -> None:
    """``contentEncoding``, which says the same as a format."""
    if isinstance(value, str) and not {"format", "pattern"} & part.said.keys() and ALIASES.get(value, value) in FORMATS:
        formatted(part, value)


def matching(part: Part, value: Any) -> None:
    """``pattern``."""
    if not isinstance(value, str):
        part.made["pattern"] = value
        return
    try:
        options = without_look_around(value)
    except Unsupported:
        part.tell("pattern")
        return
    if not all(part.rewriting.takes({"type": "string", "pattern": one}) for option in options for one in option):
        part.tell("pattern")
    elif len(options) == 1:
        for one in options[0]:
            part.add_pattern(one)
    else:
        part.conjuncts.append({"anyOf": [{"allOf": [{"pattern": one} for one in option]} for option in options]})


HANDLERS: Mapping[str, Callable[[Part, Any], None]] = {
    "format": formatted,
    "contentEncoding": encoded,
    "pattern": matching,
}
