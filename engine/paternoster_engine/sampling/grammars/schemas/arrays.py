"""Keywords of arrays that a grammar enforces in part."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import IN_PLACE
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart


def rewrite_unique_items(part: SchemaPart, value: Any) -> None:
    """Accept ``uniqueItems`` where there is at most one item; no grammar enforces it otherwise."""
    most = part.schema.get("maxItems")
    if value is not False and not (isinstance(most, int) and most <= 1):
        part.report_unenforced("uniqueItems")


def rewrite_contains(part: SchemaPart, value: Any) -> None:
    """Rewrite ``contains``, ``minContains`` and ``maxContains`` as a least number of items."""
    least, most = part.schema.get("minContains", 1), part.schema.get("maxContains")
    if isinstance(least, int) and least > 0:
        part.conjuncts.append({"minItems": least})
    if value is True or value == {}:
        if isinstance(most, int):
            part.conjuncts.append({"maxItems": most})
    elif least != 0 or most is not None:
        part.report_unenforced("contains")


def rewrite_unevaluated_items(part: SchemaPart, value: Any) -> None:
    """Rewrite ``unevaluatedItems`` as ``items`` where no other keyword evaluates items."""
    if value is True or value == {} or "items" in part.schema:
        return
    if part.schema.keys() & {*IN_PLACE, "contains"}:
        part.report_unenforced("unevaluatedItems")
    else:
        part.made["items"] = part.rewrite_within(value, "unevaluatedItems")


HANDLERS: Mapping[str, Callable[[SchemaPart, Any], None]] = {
    "uniqueItems": rewrite_unique_items,
    "contains": rewrite_contains,
    "unevaluatedItems": rewrite_unevaluated_items,
}
