"""A stored resource with fields or values that the schema no longer has is served with what takes their place."""

from collections.abc import Mapping
from typing import Any

from paternoster_contract.settings.removed import REMOVED_ADMISSIONS, REMOVED_ORDERS, REMOVED_VICTIMS

REMOVED_VALUES: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("spec", "engine", "order"): REMOVED_ORDERS,
    ("spec", "engine", "scheduling", "admission"): REMOVED_ADMISSIONS,
    ("spec", "engine", "scheduling", "victim"): REMOVED_VICTIMS,
}
"""By path: the values that a schema of this version once allowed, and what takes the place of each."""

_EVERY_STEP = "an engine admits requests at every step"
REMOVED_FIELDS: Mapping[tuple[str, ...], str] = {
    ("spec", "engine", "scheduling", "mode"): _EVERY_STEP,
    ("spec", "engine", "scheduling", "batchSize"): _EVERY_STEP,
    ("spec", "engine", "scheduling", "batchWaitMilliseconds"): _EVERY_STEP,
}
"""By path: what takes the place of a field that a schema of this version once had."""


def with_successors(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """``document`` with removed values replaced and removed fields left out; itself where there is none."""
    for path, successors in REMOVED_VALUES.items():
        document = _replace_values(document, path, successors)
    for path in REMOVED_FIELDS:
        document = _remove_path(document, path)
    return document


def _remove_path(node: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    name, *rest = path
    if name not in node:
        return node
    if not rest:
        return {other: value for other, value in node.items() if other != name}
    value = node[name]
    if not isinstance(value, Mapping):
        return node
    changed = _remove_path(value, tuple(rest))
    return node if changed is value else {**node, name: changed}


def _replace_values(node: Mapping[str, Any], path: tuple[str, ...], successors: Mapping[str, str]) -> Mapping[str, Any]:
    name, *rest = path
    value = node.get(name)
    if not rest:
        if isinstance(value, str) and value in successors:
            return {**node, name: successors[value]}
        return node
    if not isinstance(value, Mapping):
        return node
    changed = _replace_values(value, tuple(rest), successors)
    return node if changed is value else {**node, name: changed}
