"""What ``$ref`` leads to: pointers, anchors and ids within one root."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.sampling.grammars.json_schema import parts_of, referred

MAX_REFERENCE = 1024
"""Characters of a ``$ref``; a longer one leads to nothing."""
MAX_FOLLOWED = 32
"""References that one leads to the other."""


class References:
    """Of one root."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, Any] | None = None

    def target(self, reference: Any) -> Any:
        """None where there is nothing."""
        if not isinstance(reference, str) or len(reference) > MAX_REFERENCE:
            return None
        if reference == "#" or reference.startswith("#/"):
            return referred(reference, self._root)
        if self._named is None:
            self._named = _named(self._root)
        return self._named.get(reference)

    def followed(self, said: Any) -> Any:
        """``said``, or what it leads to where it is a reference and asserts nothing besides."""
        for _ in range(MAX_FOLLOWED):
            if not isinstance(said, Mapping) or "$ref" not in said or (len(said) > 1 and not _is_plain(said)):
                break
            said = self.target(said["$ref"])
        return said


def _is_plain(said: Mapping[str, Any]) -> bool:
    return said.keys() <= {"$ref", "title", "description", "default", "examples", "deprecated"}


def _named(root: Any) -> dict[str, Any]:
    """Parts by their anchors, as ``#name``, and by their ids."""
    found: dict[str, Any] = {}
    left = [root]
    while left:
        part = left.pop()
        if not isinstance(part, Mapping):
            continue
        for key, mark in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
            if isinstance(part.get(key), str):
                found.setdefault(mark + part[key], part)
        left += parts_of(part)
    return found
