"""Rewrite a JSON schema into keywords that llguidance enforces, and list the keywords that it cannot.

By the standard an assertion that an implementation does not know is an annotation, and so is ``format``. The rewritten
schema allows no value that the enforceable keywords of the original forbid. It may forbid a few that these allow, such
as years with five digits.
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite, nextafter
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas import applied, arrays, conditions, objects, strings
from paternoster_engine.sampling.grammars.schemas.closing import close_object, closes_options
from paternoster_engine.sampling.grammars.schemas.formats import LARGEST
from paternoster_engine.sampling.grammars.schemas.keywords import ENFORCED, NUMBERS, OF_NAMED, OF_ONE, OF_SEVERAL
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart
from paternoster_engine.sampling.grammars.schemas.rewriting import CompileFailure, Path, Rewriting, Unenforced


class Enforceable(NamedTuple):
    """A rewritten schema, and the keywords that it lacks."""

    schema: Any
    unenforced: tuple[Unenforced, ...] = ()
    split: bool = False
    """Whether conditions became alternatives, which may be more than a grammar can have."""


def make_enforceable(root: Any, failure: CompileFailure | None = None) -> Enforceable:
    """Rewrite ``root`` without the keywords that cannot be enforced.

    ``failure``: None at the first attempt, which leaves out only what llguidance is known not to support. Raises
    :class:`GrammarError` for a reference without a target, and where no value satisfies ``root``.
    """
    rewriting = Rewriting(root, _rewrite_part, failure)
    made = rewriting.rewrite_schema(root, ())
    if made is False:
        raise GrammarError("it allows no answer: no value is of it")
    definitions: dict[str, Any] = {}
    while rewriting.waiting:
        name, (reference, closed, tag) = rewriting.waiting.pop()
        target = rewriting.references.find_target(reference)
        path = tuple(reference.lstrip("#/").split("/"))
        definitions[name] = applied.with_required(rewriting.rewrite_schema(target, path, closed=closed), tag)
    if definitions and isinstance(made, Mapping):
        made = {**made, "$defs": definitions}
    return Enforceable(made, tuple(rewriting.unenforced), rewriting.split)


def _rewrite_part(rewriting: Rewriting, schema: Mapping[str, Any], path: Path, closed: bool) -> Any:
    part = SchemaPart(rewriting, schema, path)
    part.closes_options = closed and closes_options(part)
    for key, value in schema.items():
        if key in rewriting.left_out:
            part.report_unenforced(key)
        elif key in ENFORCED:
            part.made[key] = value
        elif key in OF_NAMED:
            part.made[key] = part.rewrite_named(key, value)
        elif key in OF_SEVERAL or (key in OF_ONE and isinstance(value, list)):
            part.made[key] = part.rewrite_list(key, value)
        elif key in OF_ONE:
            part.made[key] = part.rewrite_within(value, key)
        elif key in _HANDLERS:
            _HANDLERS[key](part, value)
    if closed and not part.closes_options:
        close_object(part)
    _check_numbers(part)
    _check_counts(part)
    if rewriting.circular and "$ref" in part.made:
        for key in schema.keys() & (part.made.keys() | _HANDLERS.keys()) - {"$ref", "$schema"}:
            part.report_unenforced(key)
        return {"$ref": part.made["$ref"]}
    return part.result()


def _check_numbers(part: SchemaPart) -> None:
    """Clamp bounds beyond :data:`LARGEST`, leave out those that llguidance does not compile, and bound multiples."""
    for key in NUMBERS:
        value = part.made.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if key != "multipleOf" and abs(value) > LARGEST:
            del part.made[key]
            if (value < 0) == key.lower().endswith("minimum"):
                part.made[key] = LARGEST if value > 0 else -LARGEST
            else:
                part.report_unenforced(key)
                if isfinite(value):
                    # As an annotation: numbers may have as many digits as it has (``number_bound.py``).
                    part.made["examples"] = [*part.made.get("examples", ()), str(int(value))]
        elif not part.rewriting.compiles_schema({"type": "number", key: value}):
            del part.made[key]
            part.report_unenforced(key)
    _narrow_exclusive_bounds(part.made)
    if "multipleOf" in part.made and "examples" not in part.made:
        # A number that is no multiple yet cannot end, however long it is.
        part.made = {"minimum": -LARGEST, "maximum": LARGEST} | part.made


def _narrow_exclusive_bounds(made: dict[str, Any]) -> None:
    """Exclude whole bounds by the next number within: llguidance allows 0 above 0 and below 0.5."""
    bounds: dict[str, float] = {
        key: made[key] for key in BOUNDS if isinstance(made.get(key), int | float) and not isinstance(made[key], bool)
    }
    least = max((bounds[key] for key in BOUNDS[:2] if key in bounds), default=-inf)
    most = min((bounds[key] for key in BOUNDS[2:] if key in bounds), default=inf)
    if not 0 < most - least < 1:
        return
    for key, bound, other in (("exclusiveMinimum", least, most), ("exclusiveMaximum", most, least)):
        if bounds.get(key) == bound and bound == int(bound):
            del made[key]
            within = nextafter(bound, other) if bound else other * SMALLEST_PART
            made["minimum" if bound == least else "maximum"] = within


BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
SMALLEST_PART = 2.0**-52
"""Least number in a range that ends at 0, as a share of its other bound: numbers closer to 0 are not written."""


def _check_counts(part: SchemaPart) -> None:
    """Leave out counts of properties, and patterns of names, that llguidance does not compile."""
    for key in [*objects.uncountable_keywords(part.made | part.replaced)]:
        del part.made[key]
        part.report_unenforced(key)
    patterns = part.made.get("patternProperties")
    if isinstance(patterns, Mapping) and not part.rewriting.compiles_schema(
        {"type": "object", "patternProperties": dict.fromkeys(patterns, True)}
    ):
        # Without the patterns additionalProperties would apply to the names that they match.
        for key in part.made.keys() & {"patternProperties", "additionalProperties"}:
            del part.made[key]
            part.report_unenforced(key)


_HANDLERS: Mapping[str, Callable[[SchemaPart, Any], None]] = {
    **applied.HANDLERS,
    **strings.HANDLERS,
    **arrays.HANDLERS,
    **objects.HANDLERS,
    **conditions.HANDLERS,
}
