"""``not`` and ``if`` rewritten as alternatives, where these allow the same values.

An ``if`` can be rewritten where it tests one property for certain strings, as schemas with a ``kind`` do.
"""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import ANNOTATIONS, TYPES
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart
from paternoster_engine.sampling.grammars.schemas.patterns import UnsupportedPattern, other_than_text

MOST_TEXTS = 16
"""Most strings that a ``not`` may exclude."""


def rewrite_not(part: SchemaPart, value: Any) -> None:
    """Rewrite ``not`` of types, of strings, of one required property, and of everything."""
    if value is False:
        return
    schema = {} if value is True else value
    if isinstance(schema, Mapping):
        schema = {key: of_key for key, of_key in schema.items() if key not in ANNOTATIONS}
        if not schema:
            part.unsatisfiable = True
            return
        if schema.keys() == {"type"} and _without_types(part, schema["type"]):
            return
        if schema.keys() <= {"const", "enum", "type"} and _without_values(part, schema):
            return
        if _without_property(part, schema):
            return
    part.report_unenforced("not")


def _without_property(part: SchemaPart, schema: Mapping[str, Any]) -> bool:
    required = schema.get("required")
    if not schema.keys() <= {"required", "type"} or not isinstance(required, list) or len(required) != 1:
        return False
    if not isinstance(required[0], str) or not schema.get("type", "object") == "object" == part.schema.get("type"):
        return False
    part.conjuncts.append({"properties": {required[0]: False}})
    return True


def _without_types(part: SchemaPart, names: Any) -> bool:
    unwanted = set(names) if isinstance(names, list) else {names}
    types = part.schema.get("type", list(TYPES))
    left = [name for name in (types if isinstance(types, list) else [types]) if name not in unwanted]
    if not unwanted <= set(TYPES) or ("integer" in unwanted and "number" in left):
        return False
    if "number" in unwanted:
        left = [name for name in left if name != "integer"]
    part.unsatisfiable |= not left
    part.conjuncts.append({"type": left})
    return True


def _without_values(part: SchemaPart, schema: Mapping[str, Any]) -> bool:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or ("type" in schema and schema["type"] != "string"):
        return False
    if not all(isinstance(value, str) for value in values) or part.schema.get("type") != "string":
        return False
    other = _other_texts(values)
    if other is not None:
        part.conjuncts.append(other)
    return other is not None


def _other_texts(values: list[str]) -> dict[str, Any] | None:
    """Return a schema of all strings but ``values``; None where no expression says that."""
    if len(values) > MOST_TEXTS:
        return None
    try:
        return {"allOf": [{"pattern": other_than_text(value)} for value in values]}
    except UnsupportedPattern:
        return None


def rewrite_if(part: SchemaPart, value: Any) -> None:
    """Rewrite ``if``, ``then`` and ``else``."""
    then, otherwise = part.schema.get("then", True), part.schema.get("else", True)
    if then is True and otherwise is True:
        return
    if isinstance(value, bool):
        chosen = "then" if value else "else"
        part.conjuncts.append(part.rewrite_within(then if value else otherwise, chosen))
        return
    split = _split_by_tag(value)
    if split is None or not part.rewriting.may_split():
        part.report_unenforced("if")
        return
    name, values, needed = split
    others = _other_texts(values)
    if others is None:
        part.report_unenforced("if")
        return
    met, unmet = part.rewrite_within(then, "then"), part.rewrite_within(otherwise, "else")
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


def _split_by_tag(schema: Any) -> tuple[str, list[str], bool] | None:
    """Return the property that ``schema`` tests, its strings, and whether it is required; None for any other schema."""
    if not isinstance(schema, Mapping) or not schema.keys() <= {"type", "properties", "required", *ANNOTATIONS}:
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or len(properties) != 1 or schema.get("type", "object") != "object":
        return None
    ((name, tag),) = properties.items()
    if not isinstance(tag, Mapping) or not tag.keys() <= {"const", "enum", "type", *ANNOTATIONS}:
        return None
    values = [tag["const"]] if "const" in tag else tag.get("enum")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    return (name, values, required == [name]) if required in ([], [name]) else None


HANDLERS = {"not": rewrite_not, "if": rewrite_if}
