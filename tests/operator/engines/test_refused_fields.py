"""Manifests that name an engine and what it cannot honour: each is refused with the field's path and the reason."""

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.operator.engines.refused_specs import (
    CASES,
    OTHER,
    OTHER_OF_OPENAI,
    OTHER_OF_SGLANG,
    manifest,
    spec_of_openai,
    spec_of_sglang,
    spec_with,
)

from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.runtime_rules import RUNTIME_RULES
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.types.model import Model
from paternoster_operator.engines.adapter import Refusal, RuntimeType
from paternoster_operator.engines.kinds import KINDS


def find_errors(spec: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        parse_resource(manifest(spec))
    return refused.value.errors


def test_the_lines_are_those_of_the_golden_file(snapshot: SnapshotAssertion) -> None:
    lines = [line for name, spec in CASES.items() for line in (f"# {name}", *find_errors(spec))]
    assert len(CASES) > 50
    assert [rule for rule in RUNTIME_RULES if not any(rule.message in line for line in lines)] == []
    assert "\n".join(lines) == snapshot


WITH = {RuntimeType.VLLM: dict, RuntimeType.SGLANG: spec_of_sglang, RuntimeType.OPENAI: spec_of_openai}
"""Spec that names an engine, by engine."""
REFUSALS = [(type_, refusal) for type_ in WITH for refusal in KINDS[type_].refusals]


@pytest.mark.parametrize(
    ("type_", "other"),
    [(RuntimeType.VLLM, OTHER), (RuntimeType.SGLANG, OTHER_OF_SGLANG), (RuntimeType.OPENAI, OTHER_OF_OPENAI)],
)
def test_every_refusal_has_a_case_and_names_its_field(type_: RuntimeType, other: dict[str, Any]) -> None:
    assert {refusal.field for refusal in KINDS[type_].refusals} == other.keys()
    for field, value in other.items():
        starts = (f"spec.{field}: is ", f"spec.{field}: has ")
        lines = find_errors(WITH[type_](spec_with(field, value)))
        assert any(line.startswith(starts) for line in lines), field


@pytest.mark.parametrize(("type_", "refusal"), REFUSALS, ids=[f"{type_}-{each.field}" for type_, each in REFUSALS])
def test_what_a_refusal_allows_passes(type_: RuntimeType, refusal: Refusal) -> None:
    """Its default among them: a manifest that sets nothing but the runtime is served."""
    values = refusal.allowed if isinstance(refusal.allowed, list) and refusal.allowed else [refusal.allowed]
    for value in values:
        if value is not None:
            gpus = {"resources": {"gpu": {"count": 1}}} if value == "fp8" else {}
            parse_resource(manifest(WITH[type_]({**spec_with(refusal.field, value), **gpus})))
    section, *path = refusal.field.split(".")
    default: Any = {"model": Model(source="file:///m"), "engine": Engine()}[section].model_dump(by_alias=True)
    for name in path:
        default = default[name]
    assert default in values


def test_a_manifest_with_keys_passes_without_a_shared_prefix_cache() -> None:
    security = {"security": {"apiKeys": [{"name": "keys"}]}}
    for engine in ({"cacheIsolation": "Fleet"}, {"prefixCache": False}):
        parse_resource(manifest({**security, "engine": engine}))


def test_each_rule_names_a_field_of_its_message() -> None:
    for rule in RUNTIME_RULES:
        assert rule.message.startswith(rule.field.removesuffix(".type"))
