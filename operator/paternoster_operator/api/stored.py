"""A stored resource whose values were removed from the schema since: it is served with what takes their place."""

from collections.abc import Mapping
from typing import Any

from paternoster_contract.settings.removed import REMOVED_ADMISSIONS, REMOVED_ORDERS, REMOVED_VICTIMS

REMOVED_VALUES: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("spec", "engine", "order"): REMOVED_ORDERS,
    ("spec", "engine", "scheduling", "admission"): REMOVED_ADMISSIONS,
    ("spec", "engine", "scheduling", "victim"): REMOVED_VICTIMS,
}
"""By path: the values that a schema of this version once allowed, and what takes the place of each."""


def with_successors(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """``document``, each value of :data:`REMOVED_VALUES` replaced; itself where there is none."""
    for path, successors in REMOVED_VALUES.items():
        document = _replaced(document, path, successors)
    return document


def _replaced(node: Mapping[str, Any], path: tuple[str, ...], successors: Mapping[str, str]) -> Mapping[str, Any]:
    name, *rest = path
    value = node.get(name)
    if not rest:
        if isinstance(value, str) and value in successors:
            return {**node, name: successors[value]}
        return node
    if not isinstance(value, Mapping):
        return node
    changed = _replaced(value, tuple(rest), successors)
    return node if changed is value else {**node, name: changed}
