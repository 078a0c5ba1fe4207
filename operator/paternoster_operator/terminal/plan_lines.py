"""A plan in words: what would be created, changed and deleted, with the differences. Pure."""

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from paternoster_contract.quantity import parse_quantity
from paternoster_operator.cluster.foreign_fields import find_own_fields
from paternoster_operator.plan.plan import Plan

_ITEM_KEYS = ("mountPath", "containerPort", "name", "port")
"""Fields by which an item of a list is the same item: the first that all items have."""
_QUANTITIES = frozenset({"limits", "requests", "sizeLimit"})
"""Fields of a pod whose values are quantities."""
_HIDDEN = "(not shown)"

Found = Mapping[str, Mapping[str, Any] | str | None]
"""The object that is there, by kind of child; or why it may not be changed, or None where there is none."""


def describe_plan(plan: Plan, found: Found) -> list[str]:
    """Lines for people. ``found`` has every child, and those that the plan deletes."""
    name = f"LLMDeployment {plan.resource.metadata.namespace}/{plan.resource.metadata.name}"
    if plan.changes is None:
        return [f"{name}: nothing would be changed: {_find_reason(plan)}"]
    lines: list[str] = []
    for child in plan.changes.children:
        lines += _describe_child(child, found.get(child["kind"]))
    lines += [
        f"delete {_name_child(child)}"
        for child in plan.changes.superfluous
        if isinstance(found.get(child["kind"]), Mapping)
    ]
    lines += [
        f"annotate Pod {plan.resource.metadata.namespace}/{pod}: {json.dumps(dict(made))}"
        for pod, made in plan.changes.annotations.items()
    ]
    lines += [f"record {event.reason}: {event.message}" for event in (*plan.changes.events, *plan.status_events)]
    return [f"{name}:", *(f"  {line}" for line in lines)] if lines else [f"{name}: nothing would be changed"]


def _find_reason(plan: Plan) -> str:
    spec, refusal = plan.resource.spec, plan.observed.refusal
    if refusal is not None:
        return f"{refusal[0]}: {refusal[1]}"
    if spec.target_ref is not None:
        return f"spec.targetRef is set: Deployment {spec.target_ref.name} is observed only"
    return "spec.paused is true"


def _describe_child(child: Mapping[str, Any], there: Mapping[str, Any] | str | None) -> Iterator[str]:
    if isinstance(there, str):
        yield f"refuse {_name_child(child)}: {there}"
    elif there is None:
        yield f"create {_name_child(child)}"
        yield from (f"  + {line}" for line in _write_lines(child))
    else:
        before = _keep_set(there, child, find_own_fields(there))
        lines = [*difflib.unified_diff(_write_lines(before), _write_lines(child), n=2, lineterm="")][2:]
        if lines:
            yield f"change {_name_child(child)}"
            yield from ("  ..." if line.startswith("@@") else f"  {line}" for line in lines)


def _name_child(child: Mapping[str, Any]) -> str:
    return f"{child['kind']} {child['metadata']['namespace']}/{child['metadata']['name']}"


def _write_lines(document: Mapping[str, Any]) -> list[str]:
    """Write ``document`` as YAML, without the values of a Secret."""
    if document["kind"] == "Secret":
        document = {**document, "data": dict.fromkeys(document.get("data", {}), _HIDDEN)}
    return yaml.safe_dump(document, width=1000).splitlines()


def _keep_set(there: Any, desired: Any, own: Mapping[str, Any], are_quantities: bool = False) -> Any:
    """Return the fields of ``there`` that ``desired`` sets, or that the operator has set (``own``, a trie of FieldsV1).

    Defaults and fields of others are neither created nor removed by an apply. A zero of the operator may be absent, as
    the API server writes no zero of a field without a default.
    """
    if isinstance(there, Mapping) and (isinstance(desired, Mapping) or own):
        desired = desired if isinstance(desired, Mapping) else {}
        zeros = {
            name: value for name, value in desired.items() if not value and name not in there and f"f:{name}" in own
        }
        return zeros | {
            name: _keep_set(value, desired.get(name), own.get(f"f:{name}", {}), are_quantities or name in _QUANTITIES)
            for name, value in there.items()
            if name in desired or f"f:{name}" in own
        }
    if isinstance(there, list) and (isinstance(desired, list) or own):
        return _keep_items(there, desired if isinstance(desired, list) else [], own)
    if are_quantities and isinstance(desired, str | int | float):
        # The API server writes 500m for 0.5.
        return desired if parse_quantity(str(there)) == parse_quantity(str(desired)) else there
    return desired if str(there) == str(desired) else there


def _keep_items(there: list[Any], desired: list[Any], own: Mapping[str, Any]) -> list[Any]:
    items = [*there, *desired]
    key = next((key for key in _ITEM_KEYS if all(isinstance(each, Mapping) and key in each for each in items)), None)
    if key is None:
        pairs = zip(there, desired, strict=True) if len(there) == len(desired) else ((each, None) for each in there)
        return [_keep_set(each, like, {}) for each, like in pairs]
    likes = {each[key]: each for each in desired}
    owned = {json.loads(name[2:]).get(key): trie for name, trie in own.items() if name.startswith("k:")}
    return [
        _keep_set(each, likes.get(each[key]), owned.get(each[key], {}))
        for each in there
        if each[key] in likes or each[key] in owned
    ]
