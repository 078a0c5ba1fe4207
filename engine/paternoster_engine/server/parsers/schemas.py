"""What a JSON schema says of one value: its types, and all that it refers to."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.json_schema import referred, with_parts

MAX_DEPTH = 32
"""Schemas in one another, and references that one leads to the other."""
MOST_PARTS = 4096
"""Schemas and values of one argument that are looked at for its types."""
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
DEFINITIONS = ("$defs", "definitions")


def types_of(said: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Names of the types that a value of ``said``, a part of ``root``, may have: all where it does not say."""
    return _Types(root).of(said, MAX_DEPTH) or ALL


class _Types:
    """Looks at each part of a schema once, and at :data:`MOST_PARTS`: beyond them a value may be anything."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, frozenset[str]] = {}
        self._looked = 0

    def of(self, said: Any, left: int) -> frozenset[str]:
        """``left``: how many schemas deep it may still go."""
        if not isinstance(said, Mapping) or left == 0:
            return ALL
        if id(said) in self._known:
            return self._known[id(said)]
        self._known[id(said)] = types = ALL
        if "type" in said:
            names = said["type"] if isinstance(said["type"], list) else [said["type"]]
            types &= {name for name in names if isinstance(name, str)} | ({"integer"} if "number" in names else set())
        for values in (said.get("enum"), [said["const"]] if "const" in said else None):
            if self._may_look(values):
                types &= {name for value in values for name in _types_of_value(value)}
        for key in ("anyOf", "oneOf"):
            if self._may_look(said.get(key)):
                types &= {name for option in said[key] for name in self.of(option, left - 1)}
        if self._may_look(said.get("allOf")):
            for part in said["allOf"]:
                types &= self.of(part, left - 1)
        if "$ref" in said:
            types &= self.of(referred(said["$ref"], self._root), left - 1)
        self._known[id(said)] = types
        return types

    def _may_look(self, parts: Any) -> TypeGuard[list[Any]]:
        if not isinstance(parts, list):
            return False
        self._looked += len(parts)
        return self._looked <= MOST_PARTS


def _types_of_value(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    whole = {"integer"} if isinstance(value, float) and value.is_integer() else set()
    return {name for name, kinds in TYPES.items() if isinstance(value, kinds)} | whole


def standing_alone(said: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """``said``, a part of ``root``, with all that it refers to as definitions of its own.

    Raises :class:`GrammarError` for a reference to what there is not.
    """
    names: dict[str, str] = {}
    definitions: dict[str, Any] = {}

    def moved(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        made = with_parts({key: value for key, value in part.items() if key not in DEFINITIONS}, moved)
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            made["$ref"] = f"#/$defs/{name_of(reference)}"
        return made

    def name_of(reference: str) -> str:
        if reference not in names:
            target = referred(reference, root)
            if target is None:
                raise GrammarError(f"$ref {reference!r} leads to nothing")
            names[reference] = name = f"d{len(names)}"
            definitions[name] = moved(target)
        return names[reference]

    made = moved(said) if isinstance(said, Mapping) else ({} if said else {"not": {}})
    return made | {"$defs": definitions} if definitions else made
