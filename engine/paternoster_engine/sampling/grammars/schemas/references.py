"""Targets of ``$ref``: pointers, anchors and ids within one root schema."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.sampling.grammars.json_schema import parts_of, resolve_reference

MAX_REFERENCE = 1024
"""Characters of a ``$ref``; a longer one has no target."""
MAX_FOLLOWED = 32
"""Longest chain of references that is followed."""


class References:
    """Resolves the references of one root schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, Any] | None = None
        self._targets: dict[str, Any] = {}
        """Each reference is resolved once, as a pointer may have hundreds of parts."""

    def find_target(self, reference: Any) -> Any:
        """Return the schema that ``reference`` names; None where there is none."""
        if not isinstance(reference, str) or len(reference) > MAX_REFERENCE:
            return None
        if reference not in self._targets:
            self._targets[reference] = self._resolve_reference(reference)
        return self._targets[reference]

    def _resolve_reference(self, reference: str) -> Any:
        if reference == "#" or reference.startswith("#/"):
            return resolve_reference(reference, self._root)
        if self._named is None:
            self._named = _index_names(self._root)
        return self._named.get(reference)

    def leads_back(self, reference: Any) -> bool:
        """Whether ``reference`` leads to itself by references alone, so that nothing says what a value is."""
        seen: set[str] = set()
        while isinstance(reference, str) and len(seen) < MAX_FOLLOWED:
            if reference in seen:
                return True
            seen.add(reference)
            schema = self.find_target(reference)
            if not isinstance(schema, Mapping) or "$ref" not in schema or not _is_plain(schema):
                return False
            reference = schema["$ref"]
        return False

    def follow_reference(self, schema: Any) -> Any:
        """Return the target of ``schema`` where it is a reference and asserts nothing else, or ``schema`` itself."""
        for _ in range(MAX_FOLLOWED):
            if not isinstance(schema, Mapping) or "$ref" not in schema or (len(schema) > 1 and not _is_plain(schema)):
                break
            schema = self.find_target(schema["$ref"])
        return schema


def _is_plain(schema: Mapping[str, Any]) -> bool:
    return schema.keys() <= {"$ref", "title", "description", "default", "examples", "deprecated"}


def _index_names(root: Any) -> dict[str, Any]:
    """Index all schemas by their anchors, as ``#name``, and by their ids."""
    found: dict[str, Any] = {}
    left = [root]
    while left:
        part = left.pop()
        if not isinstance(part, Mapping):
            continue
        for key, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
            if isinstance(part.get(key), str):
                found.setdefault(prefix + part[key], part)
        left += parts_of(part)
    return found
