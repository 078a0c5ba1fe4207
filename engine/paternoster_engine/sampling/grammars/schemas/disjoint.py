"""Whether two schemas have no value in common, as far as types, values and required properties show it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.keywords import TYPES
from paternoster_engine.sampling.grammars.schemas.references import References

MOST_COMPARED = 4_000
"""Most pairs of schemas of one root that are compared; pairs beyond count as not disjoint."""
MAX_DEPTH = 16


class Disjointness:
    """Compares schemas of one root."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = MOST_COMPARED

    def of_all(self, options: list[Any]) -> bool:
        """Whether all ``options`` are disjoint, pair by pair."""
        return all(self.are_disjoint(one, other) for i, one in enumerate(options) for other in options[i + 1 :])

    def are_disjoint(self, one: Any, other: Any, depth: int = MAX_DEPTH) -> bool:
        """Whether no value satisfies both schemas; False where that is not known."""
        self._left -= 1
        if self._left < 0 or depth == 0:
            return False
        one, other = self._resolve_schema(one), self._resolve_schema(other)
        for schema in (one, other):
            self._left -= (
                len(schema["enum"]) if isinstance(schema, Mapping) and isinstance(schema.get("enum"), list) else 0
            )
        if one is False or other is False:
            return True
        if not isinstance(one, Mapping) or not isinstance(other, Mapping):
            return False
        common = _types_of(one) & _types_of(other)
        if not common:
            return True
        these, those = _values_of(one), _values_of(other)
        if these is not None and those is not None and not these & those:
            return True
        if common == {"object"} and any(
            self.are_disjoint(_property_of(one, name), _property_of(other, name), depth - 1)
            for name in _required_names(one, other)
        ):
            return True
        return self._of_parts(one, other, depth) or self._of_parts(other, one, depth)

    def _of_parts(self, one: Mapping[str, Any], other: Any, depth: int) -> bool:
        for key in ("anyOf", "oneOf"):
            options = one.get(key)
            if (
                isinstance(options, list)
                and options
                and all(self.are_disjoint(part, other, depth - 1) for part in options)
            ):
                return True
        parts = one.get("allOf")
        return isinstance(parts, list) and any(self.are_disjoint(part, other, depth - 1) for part in parts)

    def _resolve_schema(self, schema: Any) -> Any:
        return self._references.follow_reference(schema)

    def tag_of(self, options: list[Any], discriminator: Any) -> str | None:
        """Return a property whose values distinguish all ``options``: OpenAPI's discriminator, or one that all have."""
        resolved = [self._resolve_schema(option) for option in options]
        if not all(isinstance(option, Mapping) and option.get("type") == "object" for option in resolved):
            return None
        named = discriminator.get("propertyName") if isinstance(discriminator, Mapping) else None
        first = resolved[0].get("properties") if resolved else None
        names = [named] if isinstance(named, str) else list(first) if isinstance(first, Mapping) else []
        for name in names[:MAX_DEPTH]:
            tags = [_property_of(option, name) for option in resolved]
            has_values = all(isinstance(tag, Mapping) and _values_of(tag) for tag in map(self._resolve_schema, tags))
            if has_values and self.of_all(tags):
                return str(name)
        return None


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    types = set(TYPES)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        types = {name for name in names if isinstance(name, str)}
        types |= {"integer"} if "number" in types else set()
    values = _values_of(schema)
    if values is not None:
        of_values = {_type_of(value) for value in values}
        types &= of_values | ({"number"} if "integer" in of_values else set())
    return frozenset(types)


def _values_of(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The values of ``const`` or ``enum``, each as JSON; None where there is neither, or one is no scalar."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        return None
    return frozenset(map(_json_of, values))


def _json_of(value: Any) -> str:
    """Serialize a scalar so that equal values give equal strings."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def _type_of(value: str) -> str:
    first = value[0]
    kinds = {"n": "null", "t": "boolean", "f": "boolean", '"': "string"}
    return kinds.get(first, "integer" if value.lstrip("-").isdigit() else "number")


def _required_names(*schemas: Mapping[str, Any]) -> Iterator[str]:
    for schema in schemas:
        names = schema.get("required")
        yield from (name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _property_of(schema: Mapping[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)
