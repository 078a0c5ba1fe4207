"""The CustomResourceDefinition, made from the types: structural schema, defaults, rules, columns and subresources.

Reference: apiextensions.k8s.io/v1. Pydantic's JSON schema says some things in ways a structural schema may not;
:func:`to_structural` rewrites them and raises where it has no rule.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from paternoster_contract import labels
from paternoster_operator.api.columns import COLUMNS, Column
from paternoster_operator.api.rule import Rule
from paternoster_operator.api.rules import OBJECT_RULES, SPEC_RULES
from paternoster_operator.api.stored import REMOVED_FIELDS
from paternoster_operator.api.types.status import LLMDeploymentStatus
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec

Schema = dict[str, Any]

_DROPPED = {"title", "$defs", "examples"}
_KEYWORDS = frozenset(
    [
        "additionalProperties",
        "default",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "type",
        "uniqueItems",
    ]
)
"""Keywords of a CRD's schemas that types may need; an API server refuses a CRD with any other."""
FILE_NAME = f"{labels.GROUP}_{labels.PLURAL}.yaml"


def build_crd() -> dict[str, Any]:
    """The whole object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{labels.PLURAL}.{labels.GROUP}"},
        "spec": {
            "group": labels.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": labels.KIND,
                "listKind": f"{labels.KIND}List",
                "plural": labels.PLURAL,
                "singular": labels.KIND.lower(),
                "shortNames": ["llmd"],
                "categories": ["all", "llm"],
            },
            "versions": [
                {
                    "name": labels.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": object_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [_column_schema(column) for column in COLUMNS],
                }
            ],
        },
    }


def render_crd() -> str:
    """The CRD as YAML, the same text each time."""
    head = "# Generated from operator/paternoster_operator/api by 'make generate'.\n"
    return head + yaml.dump(build_crd(), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """Without anchors and aliases: people read it, and some tools refuse them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def object_schema() -> Schema:
    """Schema of the resource."""
    spec = to_structural(LLMDeploymentSpec.model_json_schema(by_alias=True))
    for path, removed in REMOVED_FIELDS.items():
        parent = spec
        for name in path[1:-1]:
            parent = parent["properties"][name]
        rules = [_rule_schema(removed.to_rule(path))]
        parent["properties"][path[-1]] = {
            "type": removed.type, "description": "Ignored: it was removed.", "x-kubernetes-validations": rules
        }  # fmt: skip
    spec["x-kubernetes-validations"] = [_rule_schema(rule) for rule in SPEC_RULES]
    status = to_structural(LLMDeploymentStatus.model_json_schema(by_alias=True))
    status["default"] = {"observedGeneration": -1}
    return {
        "type": "object",
        "description": "A fleet of engines that serve one model.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [_rule_schema(rule) for rule in OBJECT_RULES],
    }


def to_structural(schema: Mapping[str, Any]) -> Schema:
    """Pydantic's schema as a structural one: no references, no unions with null, no titles."""
    return _convert_schema(schema, schema.get("$defs", {}), ())


def _convert_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: tuple[str, ...]) -> Schema:
    node = dict(schema)
    if "$ref" in node:
        name = node.pop("$ref").rsplit("/", 1)[-1]
        if name in seen:
            raise TypeError(f"{name} contains itself: a structural schema cannot say that")
        return _convert_schema({**definitions[name], **node}, definitions, (*seen, name))
    if "anyOf" in node:
        arms = [arm for arm in node.pop("anyOf") if arm.get("type") != "null"]
        if len(arms) != 1:
            raise TypeError(f"a structural schema has no rule for the union {arms}")
        return _convert_schema({**arms[0], **node}, definitions, seen)
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if node.get("default", ...) is None:
        del node["default"]
    extra = node.pop("additionalProperties", None)
    if isinstance(extra, Mapping):
        node["additionalProperties"] = _convert_schema(extra, definitions, seen)
    if "properties" in node:
        required = node.get("required", ())
        node["properties"] = {
            name: _with_default(
                _convert_schema(child, definitions, seen), optional="anyOf" in child or name in required
            )
            for name, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = _convert_schema(node["items"], definitions, seen)
    node = {key: value for key, value in node.items() if key not in _DROPPED}
    if unsupported := [key for key in node if key not in _KEYWORDS and not key.startswith("x-kubernetes-")]:
        raise TypeError(f"an API server has no {', '.join(unsupported)} in a schema")
    return node


def _with_default(node: Schema, *, optional: bool) -> Schema:
    """A part that is always there gets an empty default, which the defaults of its own fields then fill."""
    return node if optional or "properties" not in node else {**node, "default": {}}


def _rule_schema(rule: Rule) -> Schema:
    return {"rule": rule.expression, "message": rule.message}


def _column_schema(column: Column) -> Schema:
    out: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        out["description"] = column.description
    if column.priority:
        out["priority"] = column.priority
    return out
