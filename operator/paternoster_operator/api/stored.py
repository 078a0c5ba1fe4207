"""A stored resource with fields or values that the schema no longer has is served with what takes their place.

API servers keep removed fields as they are stored: the CRD still has them, with a rule that refuses any other value.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_contract.settings.removed import REMOVED_ADMISSIONS, REMOVED_ORDERS, VICTIM_SUCCESSOR
from paternoster_operator.api.rule import Rule
from paternoster_operator.api.types.fields import show_value

Path = tuple[str, ...]
REMOVED_VALUES: Mapping[Path, Mapping[str, str]] = {
    ("spec", "engine", "order"): REMOVED_ORDERS,
    ("spec", "engine", "scheduling", "admission"): REMOVED_ADMISSIONS,
}
"""Values that a schema of this version once allowed, and what takes the place of each, by path."""


@dataclass(frozen=True, slots=True)
class RemovedField:
    """A field that a schema of this version once had."""

    successor: str
    """Successor, in words."""
    default: int | str | None
    """Value that API servers wrote into stored resources where none was set; None where there was none."""
    type: str = "integer"

    @property
    def advice(self) -> str:
        """Advice for who sets it, in words."""
        return f"was removed: {self.successor}; leave it out"

    def to_rule(self, path: Path) -> Rule:
        """Refuse what is neither the former default nor stored already: API servers let unchanged values pass."""
        is_default = "false" if self.default is None else f"self == {self.default!r}"
        return Rule(is_default, self.advice, ".".join(path[1:]))


_EVERY_STEP = "an engine admits requests at every step"
REMOVED_FIELDS: Mapping[Path, RemovedField] = {
    ("spec", "engine", "scheduling", "mode"): RemovedField(_EVERY_STEP, "continuous", "string"),
    ("spec", "engine", "scheduling", "batchSize"): RemovedField(_EVERY_STEP, None),
    ("spec", "engine", "scheduling", "batchWaitMilliseconds"): RemovedField(_EVERY_STEP, 50),
    ("spec", "engine", "scheduling", "victim"): RemovedField(VICTIM_SUCCESSOR, "least-computed", "string"),
    ("spec", "concurrency", "windowSeconds"): RemovedField("decisions look at the last 30 s", 30),
    ("spec", "concurrency", "cooldownSeconds"): RemovedField(
        "limits of engines rest for a window, or 15 s, after a change", 15
    ),
    ("spec", "concurrency", "increaseStep"): RemovedField("the cap rises half of the way to what there is room for", 4),
    ("spec", "concurrency", "decreasePercent"): RemovedField("late tokens cut the cap by 20 % at most", 20),
    ("spec", "concurrency", "kvHighWatermarkPercent"): RemovedField("90 % of the KV pool are planned for", 90),
    ("spec", "concurrency", "minFinishedRequests"): RemovedField(
        "preemptions count once five requests have ended, and by more than chance", 5
    ),
}
"""Removed fields by path, with what takes the place of each."""


def with_successors(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """``document`` with removed values replaced and removed fields left out, and those that mattered, in words.

    ``document`` itself where there is none.
    """
    described = tuple(_describe_removed(document))
    for path, successors in REMOVED_VALUES.items():
        document = _replace_values(document, path, successors)
    return _remove_fields(document, lambda removed, value: True), described


def without_former_defaults(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """``document`` without removed fields that have their former default, as in a copy of a stored resource."""
    return _remove_fields(document, lambda removed, value: value == removed.default is not None)


def _describe_removed(document: Mapping[str, Any]) -> Iterator[str]:
    """Removed values, and removed fields that have another value than their former default."""
    for path, successors in REMOVED_VALUES.items():
        value = _read_path(document, path)
        if isinstance(value, str) and value in successors:
            successor = successors[value]
            yield f"{'.'.join(path)} is {show_value(value)}, which was removed: {successor!r} takes its place"
    for path, removed in REMOVED_FIELDS.items():
        value = _read_path(document, path)
        if value not in (None, removed.default):
            yield f"{'.'.join(path)} is {show_value(value)}, but {removed.advice}"


def _remove_fields(document: Mapping[str, Any], is_removed: Callable[[RemovedField, Any], bool]) -> Mapping[str, Any]:
    """``document`` without the removed fields for whose value ``is_removed`` returns True."""
    for path, removed in REMOVED_FIELDS.items():
        if is_removed(removed, _read_path(document, path)):
            document = _remove_path(document, path)
    return document


def _read_path(node: Any, path: Path) -> Any:
    """The value at ``path``; None where there is none."""
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _remove_path(node: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
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


def _replace_values(node: Mapping[str, Any], path: Path, successors: Mapping[str, str]) -> Mapping[str, Any]:
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
