"""What a JSON schema says of one value: its types, and all that it refers to."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.json_schema import with_parts

MAX_DEPTH = 32
"""Schemas in one another, and references that one leads to the other."""
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
    return _types(said, root, {}, MAX_DEPTH) or ALL


def _types(said: Any, root: Mapping[str, Any], known: dict[int, frozenset[str]], left: int) -> frozenset[str]:
    if not isinstance(said, Mapping) or left == 0:
        return ALL
    if id(said) in known:
        return known[id(said)]
    known[id(said)] = types = ALL
    if "type" in said:
        names = said["type"] if isinstance(said["type"], list) else [said["type"]]
        types &= {name for name in names if isinstance(name, str)} | ({"integer"} if "number" in names else set())
    for values in (said.get("enum"), [said["const"]] if "const" in said else None):
        if isinstance(values, list):
            types &= {name for value in values for name in _types_of_value(value)}
    for key in ("anyOf", "oneOf"):
        if isinstance(said.get(key), list):
            types &= {name for option in said[key] for name in _types(option, root, known, left - 1)}
    if isinstance(said.get("allOf"), list):
        for part in said["allOf"]:
            types &= _types(part, root, known, left - 1)
    if "$ref" in said:
        types &= _types(referred(said["$ref"], root), root, known, left - 1)
    known[id(said)] = types
    return types


def _types_of_value(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    whole = {"integer"} if isinstance(value, float) and value.is_integer() else set()
    return {name for name, kinds in TYPES.items() if isinstance(value, kinds)} | whole


def referred(reference: Any, root: Any) -> Any:
    """What ``reference``, a JSON pointer after ``#``, leads to; None where that is nothing within ``root``."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    found = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isascii() and key.isdigit():
            found = found[int(key)] if int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


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
