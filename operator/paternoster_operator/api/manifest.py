"""A manifest checked as an API server would check it: fields, types, bounds, then the rules between fields."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cel import cel  # Envoy's messages (xds-protos) install an empty cel/__init__.py, too; either one may stay.
from pydantic import BaseModel, ValidationError

from paternoster_operator.api.pod.fields import faults_of
from paternoster_operator.api.rule import Rule
from paternoster_operator.api.rules import OBJECT_RULES, SPEC_RULES
from paternoster_operator.api.stored import REMOVED_FIELDS, without_former_defaults
from paternoster_operator.api.types.fields import show_value
from paternoster_operator.api.types.secret import Secret
from paternoster_operator.api.v1alpha1 import LLMDeployment

_ITEM = re.compile(r"(.+)\[(.+)\]")
"""An item of a list, by its name."""


class InvalidManifest(ValueError):
    """What is wrong, one line for each fault: field, value and what is allowed."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def parse_resource(document: Mapping[str, Any], parsed: LLMDeployment | None = None) -> LLMDeployment:
    """The typed resource with defaults filled in; raises :class:`InvalidManifest` with every fault found.

    ``parsed`` is the resource as it was parsed before: where name and spec are the same, their rules hold already.
    """
    if not isinstance(document, Mapping):
        raise InvalidManifest([f"the document is {show_value(document)}: must be a mapping"])
    try:
        resource = LLMDeployment.model_validate(document)
    except ValidationError as error:
        if (rest := without_former_defaults(document)) is not document:
            return parse_resource(rest, parsed)
        raise InvalidManifest([_describe_fault(dict(fault)) for fault in error.errors()]) from error
    if parsed is not None and (parsed.metadata.name, parsed.spec) == (resource.metadata.name, resource.spec):
        return resource
    # Rules rely on the types of what they look at.
    faults = faults_of(resource.spec.pod_template.spec, "spec.podTemplate.spec") or check_rules(resource)
    if faults:
        raise InvalidManifest(faults)
    return resource


def load_resources(path: Path | str) -> list[LLMDeployment]:
    """Every LLMDeployment of a YAML or JSON file; raises :class:`InvalidManifest` naming file and document.

    Secrets may stand in it, too: :func:`load_secrets` reads them.
    """
    documents = _read_documents(path)
    fleets = {where: document for where, document in documents.items() if not _is_secret(document)}
    if not fleets:
        raise InvalidManifest([f"{path}: has no LLMDeployment: must have at least one"])
    resources: list[LLMDeployment] = []
    errors: list[str] = []
    for where, document in fleets.items():
        try:
            resources.append(parse_resource(document))
        except InvalidManifest as invalid:
            errors += [f"{where}: {error}" for error in invalid.errors]
    names = [(resource.metadata.namespace, resource.metadata.name) for resource in resources]
    errors += [
        f"{path}: metadata.name: {namespace}/{name} stands more than once: must be unique"
        for namespace, name in sorted(set(names))
        if names.count((namespace, name)) > 1
    ]
    if errors:
        raise InvalidManifest(errors)
    return resources


def load_secrets(path: Path | str) -> dict[tuple[str, str], dict[str, str]]:
    """What each Secret of a file holds, decoded, by namespace and name; raises :class:`InvalidManifest`."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    errors: list[str] = []
    for where, document in _read_documents(path).items():
        if not _is_secret(document):
            continue
        try:
            secret = Secret.model_validate(document)
        except ValidationError as error:
            errors += [f"{where}: {_describe_fault(dict(fault))}" for fault in error.errors()]
        else:
            decoded = {name: value.decode(errors="replace") for name, value in secret.data.items()}
            found[secret.metadata.namespace, secret.metadata.name] = decoded | secret.string_data
    if errors:
        raise InvalidManifest(errors)
    return found


def _read_documents(path: Path | str) -> dict[str, Any]:
    """The documents of a file, by how each is named to people."""
    path = Path(path)
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    except OSError as error:
        raise InvalidManifest([f"{path}: {error.strerror}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidManifest([f"{path}: is not YAML: {' '.join(str(error).split())}"]) from error
    one = len(documents) == 1
    return {str(path) if one else f"{path}, document {i}": each for i, each in enumerate(documents, start=1)}


def _is_secret(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("kind") == "Secret"


def check_rules(resource: LLMDeployment) -> list[str]:
    """One line for each CEL rule that does not hold."""
    document = resource.model_dump(mode="json", by_alias=True, exclude_none=True)
    spec = document["spec"]
    faults = [_rule_line(rule, spec, f"spec.{rule.field}") for rule in _find_broken_rules(SPEC_RULES, spec)]
    return faults + [_rule_line(rule, document, rule.field) for rule in _find_broken_rules(OBJECT_RULES, document)]


def _find_broken_rules(rules: Iterable[Rule], subject: Mapping[str, Any]) -> list[Rule]:
    # A context takes the document over once, which costs more than all rules do.
    context = cel.Context({"self": subject})
    return [rule for rule in rules if _compile_rule(rule.expression).execute(context) is not True]


@cache
def _compile_rule(expression: str) -> cel.Program:
    """Each fleet is checked at each look: what is compiled once need not be again."""
    return cel.compile(expression)


def _rule_line(rule: Rule, subject: Mapping[str, Any], field: str) -> str:
    value: Any = subject
    for part in rule.field.split("."):
        item = _ITEM.fullmatch(part)
        value = value.get(item[1] if item else part) if isinstance(value, Mapping) else None
        if item and value is not None:
            value = next((each for each in value if each["name"] == item[2]), None)
    if value is None:
        found = "is unset"
    elif isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value):
        found = f"has {', '.join(str(item['name']) for item in value)}"
    else:
        found = f"is {show_value(value)}"
    return f"{field}: {found}: {rule.message}"


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """A pydantic error as field, value and what is allowed."""
    location = [part for part in fault["loc"] if part != "[key]"]
    field = ".".join(f"[{part}]" if isinstance(part, int) else str(part) for part in location).replace(".[", "[")
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "missing":
        return f"{field}: is missing: it is required"
    if kind == "extra_forbidden" and (removed := REMOVED_FIELDS.get(tuple(map(str, location)))):
        return f"{field}: {removed.advice}"
    if kind == "extra_forbidden":
        allowed = ", ".join(_fields_at(location[:-1]))
        return f"{field}: unknown field: allowed here: {allowed}"
    if kind == "literal_error" or kind == "enum":
        wanted = f"must be one of {context['expected']}"
    elif kind == "string_pattern_mismatch":
        wanted = f"must match {context['pattern']}"
    elif kind in ("greater_than_equal", "less_than_equal"):
        wanted = (
            f"must be {'at least' if kind.startswith('greater') else 'at most'} {context.get('ge', context.get('le'))}"
        )
    else:
        wanted = (
            fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be").replace("should", "must")
        )
    return f"{field}: is {show_value(fault['input'])}: {wanted[:1].lower() + wanted[1:]}"


def _fields_at(location: list[Any]) -> list[str]:
    """Names allowed in the part of the resource at ``location``."""
    model: Any = LLMDeployment
    for part in location:
        if isinstance(part, int):
            continue
        annotation = next(field.annotation for field in model.model_fields.values() if field.alias == part)
        model = next(kind for kind in _models_in(annotation))
    return sorted(field.alias or name for name, field in model.model_fields.items() if not field.exclude)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
