"""Keywords that say what a value must not be, or when it must be something: said as alternatives, where that is exact.

``if`` is, where it names values of a property that are texts, as schemas with a kind do.
"""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import ANNOTATIONS, TYPES
from paternoster_engine.sampling.grammars.schemas.part import Part
from paternoster_engine.sampling.grammars.schemas.patterns import Unsupported, other_than_text

MOST_TEXTS = 16
"""Of those that a text must not be."""


def negated(part: Part, value: Any) -> None:
    """``not``."""
    if value is False:
        return
    said = {} if value is True else value
    if isinstance(said, Mapping):
        said = {key: of_key for key, of_key in said.items() if key not in ANNOTATIONS}
        if not said:
            part.unsatisfiable = True
            return
        if said.keys() == {"type"} and _without_types(part, said["type"]):
            return
        if said.keys() <= {"const", "enum", "type"} and _without_values(part, said):
            return
        if _without_property(part, said):
            return
    part.tell("not")


def _without_property(part: Part, said: Mapping[str, Any]) -> bool:
    required = said.get("required")
    if not said.keys() <= {"required", "type"} or not isinstance(required, list) or len(required) != 1:
        return False
    if not isinstance(required[0], str) or not said.get("type", "object") == "object" == part.said.get("type"):
        return False
    part.conjuncts.append({"properties": {required[0]: False}})
    return True


def _without_types(part: Part, names: Any) -> bool:
    unwanted = set(names) if isinstance(names, list) else {names}
    types = part.said.get("type", list(TYPES))
    left = [name for name in (types if isinstance(types, list) else [types]) if name not in unwanted]
    if not unwanted <= set(TYPES) or ("integer" in unwanted and "number" in left):
        return False
    if "number" in unwanted:
        left = [name for name in left if name != "integer"]
    part.unsatisfiable |= not left
    part.conjuncts.append({"type": left})
    return True


def _without_values(part: Part, said: Mapping[str, Any]) -> bool:
    values = [said["const"]] if "const" in said else said.get("enum")
    if not isinstance(values, list) or ("type" in said and said["type"] != "string"):
        return False
    if not all(isinstance(value, str) for value in values) or part.said.get("type") != "string":
        return False
    other = _other_texts(values)
    if other is not None:
        part.conjuncts.append(other)
    return other is not None


def _other_texts(values: list[str]) -> dict[str, Any] | None:
    """A schema of the texts that are none of ``values``."""
    if len(values) > MOST_TEXTS:
        return None
    try:
        return {"allOf": [{"pattern": other_than_text(value)} for value in values]}
    except Unsupported:
        return None


def conditional(part: Part, value: Any) -> None:
    """``if``, with ``then`` and ``else``."""
    then, otherwise = part.said.get("then", True), part.said.get("else", True)
    if then is True and otherwise is True:
        return
    if isinstance(value, bool):
        chosen = "then" if value else "else"
        part.conjuncts.append(part.within(then if value else otherwise, chosen))
        return
    split = _split(value)
    if split is None or not part.rewriting.may_split():
        part.tell("if")
        return
    name, values, needed = split
    others = _other_texts(values)
    if others is None:
        part.tell("if")
        return
    met, unmet = part.within(then, "then"), part.within(otherwise, "else")
    part.conjuncts.append(
        {
            "anyOf": [
                {"properties": {name: {"enum": values}}, "required": [name], "allOf": [met]},
                {
                    "properties": {name: {"anyOf": [{"type": "string", **others}, {"type": _OTHER_TYPES}]}},
                    "required": [name],
                    "allOf": [unmet],
                },
                {"properties": {name: False}, "allOf": [unmet if needed else met]},
            ]
        }
    )


_OTHER_TYPES = [name for name in TYPES if name not in ("string", "integer")]


def _split(said: Any) -> tuple[str, list[str], bool] | None:
    """Which property has which texts where ``said`` is met, and whether it must be there; None for anything else."""
    if not isinstance(said, Mapping) or not said.keys() <= {"type", "properties", "required", *ANNOTATIONS}:
        return None
    properties, required = said.get("properties"), said.get("required", [])
    if not isinstance(properties, Mapping) or len(properties) != 1 or said.get("type", "object") != "object":
        return None
    ((name, schema),) = properties.items()
    if not isinstance(schema, Mapping) or not schema.keys() <= {"const", "enum", "type", *ANNOTATIONS}:
        return None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    return (name, values, required == [name]) if required in ([], [name]) else None


HANDLERS = {"not": negated, "if": conditional}
