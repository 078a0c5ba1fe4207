"""The fields of a pod's spec as Kubernetes has them: what each may hold, and the keys of lists.

``fields.json`` has them by type; ``scripts/pod-fields`` writes it from Kubernetes' OpenAPI and says how to read it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from paternoster_operator.api.types.fields import show_value

POD_SPEC = "PodSpec"
MAX_ITEMS, MAX_CONTAINERS = 128, 16
"""Limits for each list and mapping, so that the API server can bound what a rule over them costs."""
MAX_LENGTH = 512
"""Limit for strings that must be there, such as names and paths, for the same reason."""
KEY_DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}
"""What a field that distinguishes items means where it is left out."""
_SCALARS: Mapping[str, str] = {
    "string": "must be a string",
    "boolean": "must be true or false",
    "int32": "must be an integer of 32 bits",
    "int64": "must be an integer of 64 bits",
    "quantity": "must be a quantity, such as 500m, 2 or 512Mi",
    "int-or-string": "must be an integer or a string",
}
_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"(?:\[(?P<keys>[^]]*)\])?(?P<map>\{\})?(?P<of>[^!]+)(?P<required>!)?")


class Field(NamedTuple):
    """What a field holds."""

    of: str
    """A scalar or the name of a type: of the field itself, or of each of its items."""
    keys: tuple[str, ...] | None = None
    """Fields that identify a list's items; empty where it has none, None where this is no list."""
    mapping: bool = False
    """A mapping of strings to ``of``."""
    required: bool = False

    @property
    def scalar(self) -> bool:
        return self.of in _SCALARS

    @property
    def most(self) -> int:
        """Items that a list or mapping may have."""
        return MAX_CONTAINERS if self.of == "Container" else MAX_ITEMS

    @property
    def item(self) -> "Field":
        """Item of a list or mapping."""
        return Field(self.of)


@cache
def fields_of(type_: str) -> Mapping[str, Field]:
    """The fields of a type, by name; raises ``KeyError`` for a type that no pod has."""
    return {name: _read_field(word) for name, word in _read_types()[type_].items()}


def key_of(item: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    """What distinguishes ``item`` from the others of its list; None for what it leaves out."""
    return tuple(item.get(key, KEY_DEFAULTS.get(key)) for key in keys)


def faults_of(value: Any, path: str, type_: str = POD_SPEC) -> list[str]:
    """One line for each field of a pod's spec, or of a part of it, that does not exist or has another type.

    Inside of objects that :func:`build_schema` leaves open a field may be null, unless it is required: the merge
    removes it. Elsewhere the API server drops nulls, before the operator reads them.
    """
    found: list[str] = []
    _check_field(value, Field(type_), path, found, nullable=False)
    return found


def build_schema() -> dict[str, Any]:
    """A structural schema of a pod's spec, less what is inside of its objects: :func:`faults_of` looks there."""
    return _object_schema(POD_SPEC)


@cache
def _read_types() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("fields.json").read_text())["types"]
    return found


def _read_field(word: str) -> Field:
    parts = _WORD.fullmatch(word)
    assert parts is not None, word
    keys = None if parts["keys"] is None else tuple(filter(None, parts["keys"].split(",")))
    return Field(parts["of"], keys, parts["map"] is not None, parts["required"] is not None)


def _check_field(value: Any, field: Field, path: str, found: list[str], *, nullable: bool) -> None:
    """``nullable``: whether fields of this object may be null."""
    if field.keys is not None:
        _check_list(value, field, path, found, nullable=nullable)
    elif field.mapping:
        if not isinstance(value, Mapping) or len(value) > field.most or not all(isinstance(key, str) for key in value):
            found.append(f"{path}: is {show_value(value)}: must be a mapping with at most {field.most} names")
            return
        for name, each in value.items():
            _check_field(each, field.item, f"{path}.{name}", found, nullable=nullable)
    elif field.scalar:
        if not _fits_scalar(value, field.of):
            found.append(f"{path}: is {show_value(value)}: {_SCALARS[field.of]}")
        elif field.required and isinstance(value, str) and len(value) > MAX_LENGTH:
            found.append(f"{path}: is {show_value(value)}: must have at most {MAX_LENGTH} characters")
    elif not isinstance(value, Mapping):
        found.append(f"{path}: is {show_value(value)}: must be a mapping")
    else:
        fields = fields_of(field.of)
        for name, each in value.items():
            inner = fields.get(name)
            if inner is not None and not (each is None and nullable and not inner.required):
                # What a list or a mapping of the pod's spec holds has a schema; every other object is left open.
                open_ = nullable or (inner.keys is None and not inner.mapping)
                _check_field(each, inner, f"{path}.{name}", found, nullable=open_)
            elif inner is None:
                found.append(f"{path}.{name}: unknown field: allowed here: {', '.join(fields)}")
        found += [
            f"{path}.{name}: is missing: it is required"
            for name, inner in fields.items()
            if inner.required and name not in value
        ]


def _check_list(value: Any, field: Field, path: str, found: list[str], *, nullable: bool) -> None:
    if not isinstance(value, list) or len(value) > field.most:
        found.append(f"{path}: is {show_value(value)}: must be a list with at most {field.most} items")
        return
    seen = set()
    for index, item in enumerate(value):
        before = len(found)
        _check_field(item, field.item, f"{path}[{index}]", found, nullable=nullable)
        if not field.keys or len(found) > before:
            continue
        key = key_of(item, field.keys)
        lacking = [name for name, part in zip(field.keys, key, strict=True) if part is None]
        found += [f"{path}[{index}].{name}: is missing: it is required" for name in lacking]
        if key in seen:
            item_key = ", ".join(f"{name} {part!r}" for name, part in zip(field.keys, key, strict=True))
            found.append(f"{path}[{index}]: has {item_key}, as an item before it: must be unique")
        seen.add(key)


def _fits_scalar(value: Any, scalar: str) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match scalar:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "int32":
            return whole and -(2**31) <= value < 2**31
        case "int64":
            return whole and -(2**63) <= value < 2**63
        case "quantity":
            return whole or isinstance(value, float) or (isinstance(value, str) and bool(_QUANTITY.fullmatch(value)))
        case _:
            return isinstance(value, str) or (whole and -(2**31) <= value < 2**31)


def _object_schema(type_: str) -> dict[str, Any]:
    fields = fields_of(type_)
    described: dict[str, Any] = {"type": "object"}
    if needed := [name for name, field in fields.items() if field.required]:
        described["required"] = needed
    return {**described, "properties": {name: _field_schema(field) for name, field in fields.items()}}


def _field_schema(field: Field) -> dict[str, Any]:
    if field.keys is not None:
        # What lists hold is looked at by rules; other objects are left as they are.
        inner = _field_schema(field.item) if field.scalar else _object_schema(field.of)
        return {"type": "array", "maxItems": field.most, "items": inner}
    if field.mapping:
        return {"type": "object", "maxProperties": field.most, "additionalProperties": _field_schema(field.item)}
    if field.of in ("quantity", "int-or-string"):
        return {"x-kubernetes-int-or-string": True}
    if field.of in ("int32", "int64"):
        return {"type": "integer", "format": field.of}
    if not field.scalar:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    bounded = field.required and field.of == "string"
    return {"type": field.of, "maxLength": MAX_LENGTH} if bounded else {"type": field.of}
