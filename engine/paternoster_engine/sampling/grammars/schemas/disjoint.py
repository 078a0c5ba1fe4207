"""Whether no value is of two schemas, where that can be seen from types, values and required properties."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import TYPES
from paternoster_engine.sampling.grammars.schemas.references import References

MOST_COMPARED = 4_000
"""Pairs of schemas, for all of one root: what is not compared is not known to be disjoint."""
MAX_DEPTH = 16


class Disjointness:
    """Of parts of one root."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = MOST_COMPARED

    def of_all(self, options: list[Any]) -> bool:
        """Whether each two of ``options`` are."""
        return all(self.of(one, other) for i, one in enumerate(options) for other in options[i + 1 :])

    def of(self, one: Any, other: Any, depth: int = MAX_DEPTH) -> bool:
        self._left -= 1
        if self._left < 0 or depth == 0:
            return False
        one, other = self._resolved(one), self._resolved(other)
        for said in (one, other):
            self._left -= len(said["enum"]) if isinstance(said, Mapping) and isinstance(said.get("enum"), list) else 0
        if one is False or other is False:
            return True
        if not isinstance(one, Mapping) or not isinstance(other, Mapping):
            return False
        common = _types(one) & _types(other)
        if not common:
            return True
        these, those = _values(one), _values(other)
        if these is not None and those is not None and not these & those:
            return True
        if common == {"object"} and any(
            self.of(_property(one, name), _property(other, name), depth - 1) for name in _required(one, other)
        ):
            return True
        return self._of_parts(one, other, depth) or self._of_parts(other, one, depth)

    def _of_parts(self, one: Mapping[str, Any], other: Any, depth: int) -> bool:
        for key in ("anyOf", "oneOf"):
            options = one.get(key)
            if isinstance(options, list) and options and all(self.of(part, other, depth - 1) for part in options):
                return True
        parts = one.get("allOf")
        return isinstance(parts, list) and any(self.of(part, other, depth - 1) for part in parts)

    def _resolved(self, said: Any) -> Any:
        return self._references.followed(said)

    def tag_of(self, options: list[Any], discriminator: Any) -> str | None:
        """A property whose values tell all of ``options`` apart, if it is there: OpenAPI's, or one that each has."""
        resolved = [self._resolved(option) for option in options]
        if not all(isinstance(option, Mapping) and option.get("type") == "object" for option in resolved):
            return None
        named = discriminator.get("propertyName") if isinstance(discriminator, Mapping) else None
        first = resolved[0].get("properties") if resolved else None
        names = [named] if isinstance(named, str) else list(first) if isinstance(first, Mapping) else []
        for name in names[:MAX_DEPTH]:
            tags = [_property(option, name) for option in resolved]
            known = all(isinstance(tag, Mapping) and _values(tag) for tag in map(self._resolved, tags))
            if known and self.of_all(tags):
                return str(name)
        return None


def _types(said: Mapping[str, Any]) -> frozenset[str]:
    types = set(TYPES)
    if "type" in said:
        names = said["type"] if isinstance(said["type"], list) else [said["type"]]
        types = {name for name in names if isinstance(name, str)}
        types |= {"integer"} if "number" in types else set()
    values = _values(said)
    if values is not None:
        of_values = {_type_of(value) for value in values}
        types &= of_values | ({"number"} if "integer" in of_values else set())
    return frozenset(types)


def _values(said: Mapping[str, Any]) -> frozenset[str] | None:
    """What it may be, each as JSON; None where that is not said."""
    values = [said["const"]] if "const" in said else said.get("enum")
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        return None
    return frozenset(map(_said, values))


def _said(value: Any) -> str:
    """Equal values are equal texts."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def _type_of(value: str) -> str:
    first = value[0]
    kinds = {"n": "null", "t": "boolean", "f": "boolean", '"': "string"}
    return kinds.get(first, "integer" if value.lstrip("-").isdigit() else "number")


def _required(*said: Mapping[str, Any]) -> Iterator[str]:
    for schema in said:
        names = schema.get("required")
        yield from (name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _property(said: Mapping[str, Any], name: str) -> Any:
    properties = said.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return True if said.get("patternProperties") else said.get("additionalProperties", True)
