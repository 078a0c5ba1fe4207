"""Keywords of lists that a grammar says in part."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import IN_PLACE
from paternoster_engine.sampling.grammars.schemas.part import Part


def unique(part: Part, value: Any) -> None:
    most = part.said.get("maxItems")
    if value is not False and not (isinstance(most, int) and most <= 1):
        part.tell("uniqueItems")


def containing(part: Part, value: Any) -> None:
    """``contains``, with ``minContains`` and ``maxContains``: a list has at least as many items."""
    least, most = part.said.get("minContains", 1), part.said.get("maxContains")
    if isinstance(least, int) and least > 0:
        part.conjuncts.append({"minItems": least})
    if value is True or value == {}:
        if isinstance(most, int):
            part.conjuncts.append({"maxItems": most})
    elif least != 0 or most is not None:
        part.tell("contains")


def unevaluated(part: Part, value: Any) -> None:
    if value is True or value == {} or "items" in part.said:
        return
    if part.said.keys() & {*IN_PLACE, "contains"}:
        part.tell("unevaluatedItems")
    else:
        part.made["items"] = part.within(value, "unevaluatedItems")


HANDLERS: Mapping[str, Callable[[Part, Any], None]] = {
    "uniqueItems": unique,
    "contains": containing,
    "unevaluatedItems": unevaluated,
}
