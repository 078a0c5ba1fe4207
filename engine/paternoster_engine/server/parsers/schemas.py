"""Types that a JSON schema allows for a value, and schemas that it refers to."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.json_schema import resolve_reference, with_parts

MAX_DEPTH = 32
"""Schemas in one another, and references that one leads to the other."""
MOST_PARTS = 2**16
"""Options of all arguments of a tool that are looked at for their types."""
MAX_REFERENCE = 1024
"""Characters of a ``$ref``; a longer one leads to nothing."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
ALL = frozenset(TYPES)
NAMES: Mapping[type, frozenset[str]] = {
    kind: frozenset(name for name, kinds in TYPES.items() if kind in kinds)
    for kinds in TYPES.values()
    for kind in kinds
}
"""Names of the types that a value read from JSON has; a float may be an integer besides."""
DEFINITIONS = ("$defs", "definitions")


class ArgumentTypes:
    """Types that the values of a tool's arguments may have. Each part of their schemas is looked at once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._types: dict[int, frozenset[str]] = {}
        self._looked = 0

    @property
    def over(self) -> bool:
        """Whether there was more to look at than :data:`MOST_PARTS`: a value beyond them may be anything."""
        return self._looked > MOST_PARTS

    def types_of(self, schema: Any) -> frozenset[str]:
        """Their names, for a value of ``schema``, a part of the root: all where it names none."""
        return self._types_of_schema(schema, MAX_DEPTH) or ALL

    def of_argument(self, name: str) -> frozenset[str]:
        """Schemas of the argument ``name`` where the root describes all of them."""
        properties = self._root.get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        return self.types_of(self._root.get("additionalProperties") if schema is None else schema)

    def _types_of_schema(self, schema: Any, left: int) -> frozenset[str]:
        """``left``: how many schemas deep it may still go."""
        if not isinstance(schema, Mapping) or left == 0:
            return ALL
        if id(schema) in self._types:
            return self._types[id(schema)]
        self._types[id(schema)] = types = ALL
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            types &= {name for name in names if isinstance(name, str)} | ({"integer"} if "number" in names else set())
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(values, list):
                types &= _types_of_values(values)
        for key in ("anyOf", "oneOf"):
            if self._may_look(schema.get(key)):
                types &= {name for option in schema[key] for name in self._types_of_schema(option, left - 1)}
        if self._may_look(schema.get("allOf")):
            for part in schema["allOf"]:
                types &= self._types_of_schema(part, left - 1)
        if "$ref" in schema:
            types &= self._types_of_schema(target_of(schema["$ref"], self._root), left - 1)
        self._types[id(schema)] = types
        return types

    def _may_look(self, parts: Any) -> TypeGuard[list[Any]]:
        if not isinstance(parts, list):
            return False
        self._looked += len(parts)
        return not self.over


def _types_of_values(values: list[Any]) -> frozenset[str]:
    kinds = {type(value) for value in values}
    whole = float in kinds and any(isinstance(value, float) and value.is_integer() for value in values)
    return frozenset({"integer"} if whole else ()).union(*(NAMES[kind] for kind in kinds))


def target_of(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a ``$ref`` leads to, None where that is nothing."""
    return None if isinstance(reference, str) and len(reference) > MAX_REFERENCE else resolve_reference(reference, root)


def standing_alone(part: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """``part`` of the schema ``root``, with all that it refers to as definitions of its own.

    Raises :class:`GrammarError` for a reference to what there is not.
    """
    names: dict[str, str] = {}
    definitions: dict[str, Any] = {}

    def move_references(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        made = with_parts({key: value for key, value in part.items() if key not in DEFINITIONS}, move_references)
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            made["$ref"] = f"#/$defs/{name_of(reference)}"
        return made

    def name_of(reference: str) -> str:
        if reference not in names:
            target = target_of(reference, root)
            if target is None:
                raise GrammarError(f"$ref {reference!r:.60} leads to nothing")
            names[reference] = name = f"d{len(names)}"
            definitions[name] = move_references(target)
        return names[reference]

    made = move_references(part) if isinstance(part, Mapping) else ({} if part else {"not": {}})
    return made | {"$defs": definitions} if definitions else made
