"""Fields of a child that other field managers set and the operator does not: found, and made the operator's. Pure.

Reference: ``metadata.managedFields`` of the Kubernetes API, a trie of fields for each manager (FieldsV1). Defaults
and what admission sets are no manager's, so neither counts here. An apply removes what its manager owns alone and the
new document lacks: once the operator owns the fields of others, its next apply removes them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from paternoster_contract import labels

FieldPath = tuple[str, ...]
"""Keys of the trie: ``f:NAME``, ``k:{"name":"engine"}`` (of a list by keys), ``v:VALUE`` (of a set), ``i:INDEX``."""

_NOT_COMPARED = ("f:metadata", "f:status")
"""Tools mark objects with labels and annotations of their own; a status is its controller's."""
_RESTARTED: FieldPath = (
    "f:spec", "f:template", "f:metadata", "f:annotations", "f:kubectl.kubernetes.io/restartedAt",
)  # fmt: skip
"""``kubectl rollout restart`` asks for new pods by it: without it the old ones would come back."""


def find_foreign_fields(child: Mapping[str, Any]) -> dict[str, list[str]]:
    """Fields that no manager but others than the operator has, as ``spec.paused``, by manager."""
    managed = child["metadata"].get("managedFields", ())
    others = [entry for entry in managed if not _is_own(entry) and "subresource" not in entry]
    if not others:
        return {}
    expected, found = _expected_paths(managed), dict[str, list[str]]()
    for entry in others:
        foreign = _drop_inner_paths(_foreign_paths(frozenset(_read_paths(entry.get("fieldsV1", {}))), expected))
        if foreign:
            found.setdefault(entry.get("manager", "unknown"), []).extend(map(_write_path, foreign))
    return found


def describe_foreign_fields(child: Mapping[str, Any]) -> str:
    """Describe foreign fields in words; empty where there are none."""
    found = find_foreign_fields(child)
    if not found:
        return ""
    text = "; ".join(f"{', '.join(fields)} (set by {manager})" for manager, fields in sorted(found.items()))
    return f"{child['kind']} {child['metadata']['name']}: {text}"


def find_own_fields(child: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields that the operator has set, as a trie (FieldsV1)."""
    managed = child["metadata"].get("managedFields", ())
    return next((entry.get("fieldsV1", {}) for entry in managed if _is_own(entry)), {})


def adopt_foreign_fields(managed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The managed fields of a child with all that :func:`find_foreign_fields` finds in them owned by the operator."""
    expected, adopted, entries = _expected_paths(managed), frozenset[FieldPath](), list[dict[str, Any]]()
    for entry in managed:
        fields = frozenset(_read_paths(entry.get("fieldsV1", {})))
        if not _is_own(entry) and "subresource" not in entry:  # /scale and /status have writers of their own
            foreign = _foreign_paths(fields, expected)
            adopted, fields = adopted | foreign, fields - foreign
        if fields:
            entries.append({**entry, "fieldsV1": _build_trie(fields)})
    for entry in filter(_is_own, entries):
        entry["fieldsV1"] = _build_trie({*_read_paths(entry["fieldsV1"]), *adopted})
    return entries


def _expected_paths(managed: Iterable[Mapping[str, Any]]) -> frozenset[FieldPath]:
    """The operator's fields, with what these are within."""
    return _list_prefixes(
        path for entry in managed if _is_own(entry) for path in _read_paths(entry.get("fieldsV1", {}))
    )


def _is_own(entry: Mapping[str, Any]) -> bool:
    return (entry.get("manager"), entry.get("operation")) == (labels.MANAGER, "Apply") and "subresource" not in entry


def _foreign_paths(fields: Set[FieldPath], expected: Set[FieldPath]) -> frozenset[FieldPath]:
    """Paths of ``fields`` that are compared and not expected."""
    allowed = expected | _list_prefixes((_RESTARTED,)) if _RESTARTED in fields else expected
    return frozenset(path for path in fields if path[0] not in _NOT_COMPARED and path not in allowed)


def _list_prefixes(paths: Iterable[FieldPath]) -> frozenset[FieldPath]:
    return frozenset(path[:length] for path in paths for length in range(1, len(path) + 1))


def _drop_inner_paths(paths: Set[FieldPath]) -> list[FieldPath]:
    """Without those that are within another one of them."""
    return sorted(path for path in paths if not any(path[:length] in paths for length in range(1, len(path))))


def _read_paths(trie: Mapping[str, Any], above: FieldPath = ()) -> Iterator[FieldPath]:
    for key, below in trie.items():
        if key == ".":
            yield above
        elif not below:
            yield (*above, key)
        else:
            yield from _read_paths(below, (*above, key))


def _build_trie(paths: Iterable[FieldPath]) -> dict[str, Any]:
    trie: dict[str, Any] = {}
    for path in sorted(paths, key=len, reverse=True):
        node = trie
        for key in path:
            node = node.setdefault(key, {})
        if node:
            node["."] = {}
    return trie


def _write_path(path: FieldPath) -> str:
    """Write a path for people: ``spec.template.spec.containers[engine].env[FOO]``."""
    text = ""
    for key in path:
        kind, _, value = key.partition(":")
        if kind == "f":
            text += f".{value}" if text else value
        else:
            found = json.loads(value) if kind in "kv" else value
            text += f"[{','.join(map(str, found.values())) if isinstance(found, dict) else found}]"
    return text
