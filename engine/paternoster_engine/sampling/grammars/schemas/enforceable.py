"""A JSON schema as llguidance enforces it, and which of its keywords no answer is held to.

By the standard an assertion that an implementation does not know is an annotation, and so is ``format``. What is
rewritten allows no value that the rest of the schema does not; where a keyword is said in other words some values of it
may be left out, such as years with five digits.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas import applied, arrays, conditions, objects, strings
from paternoster_engine.sampling.grammars.schemas.formats import LARGEST
from paternoster_engine.sampling.grammars.schemas.keywords import KEPT, NUMBERS, OF_NAMED, OF_ONE, OF_SEVERAL
from paternoster_engine.sampling.grammars.schemas.part import Part
from paternoster_engine.sampling.grammars.schemas.rewriting import Path, Rewriting, Tried, Unenforced


class Enforceable(NamedTuple):
    schema: Any
    unenforced: tuple[Unenforced, ...] = ()
    split: bool = False
    """Whether conditions became alternatives, which may be more than a grammar can have."""


def enforceable(root: Any, tried: Tried | None = None) -> Enforceable:
    """``root`` without what cannot be enforced.

    ``tried``: None where only what is known not to be supported is left out. Raises :class:`GrammarError` for a
    reference to what there is not, and where no value is of ``root``.
    """
    rewriting = Rewriting(root, _rewritten, tried)
    made = rewriting.schema(root, ())
    if made is False:
        raise GrammarError("it allows no answer: no value is of it")
    definitions: dict[str, Any] = {}
    while rewriting.waiting:
        name, reference, tag = rewriting.waiting.pop()
        target = rewriting.references.target(reference)
        path = tuple(reference.lstrip("#/").split("/"))
        definitions[name] = applied.requiring(rewriting.schema(target, path), tag)
    if definitions and isinstance(made, Mapping):
        made = {**made, "$defs": definitions}
    return Enforceable(made, tuple(rewriting.unenforced), rewriting.split)


def _rewritten(rewriting: Rewriting, said: Mapping[str, Any], path: Path) -> Any:
    part = Part(rewriting, said, path)
    for key, value in said.items():
        if key in rewriting.left_out:
            part.tell(key)
        elif key in KEPT:
            part.made[key] = value
        elif key in OF_NAMED:
            part.made[key] = part.named(key, value)
        elif key in OF_SEVERAL or (key in OF_ONE and isinstance(value, list)):
            part.made[key] = part.several(key, value)
        elif key in OF_ONE:
            part.made[key] = part.within(value, key)
        elif key in _HANDLERS:
            _HANDLERS[key](part, value)
    _check_numbers(part)
    _check_counts(part)
    if rewriting.circular and "$ref" in part.made:
        for key in said.keys() & (part.made.keys() | _HANDLERS.keys()) - {"$ref", "$schema"}:
            part.tell(key)
        return {"$ref": part.made["$ref"]}
    return part.whole()


def _check_numbers(part: Part) -> None:
    """Bounds that llguidance does not take are brought nearer where that leaves out what is farther."""
    for key in NUMBERS:
        value = part.made.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if key != "multipleOf" and abs(value) > LARGEST:
            del part.made[key]
            if (value < 0) == key.lower().endswith("minimum"):
                part.made[key] = LARGEST if value > 0 else -LARGEST
            else:
                part.tell(key)
        elif not part.rewriting.takes({"type": "number", key: value}):
            del part.made[key]
            part.tell(key)


def _check_counts(part: Part) -> None:
    for key in [*objects.uncounted(part.made | part.replaced)]:
        del part.made[key]
        part.tell(key)
    patterns = part.made.get("patternProperties")
    if isinstance(patterns, Mapping) and not part.rewriting.takes(
        {"type": "object", "patternProperties": dict.fromkeys(patterns, True)}
    ):
        # What is left for other names says nothing of those that the patterns are of.
        for key in part.made.keys() & {"patternProperties", "additionalProperties"}:
            del part.made[key]
            part.tell(key)


_HANDLERS: Mapping[str, Callable[[Part, Any], None]] = {
    **applied.HANDLERS,
    **strings.HANDLERS,
    **arrays.HANDLERS,
    **objects.HANDLERS,
    **conditions.HANDLERS,
}
