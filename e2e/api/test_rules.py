"""The API server refuses what the manifest's own check refuses, in the same words where the words are ours."""

import json
from collections.abc import Callable
from typing import Any

from tests.operator.api.rule_lines import rule_of
from tests.operator.engines.refused_specs import CASES
from tests.operator.engines.refused_specs import manifest as manifest_of_vllm

from paternoster_e2e.kubectl import Document, Kubectl
from paternoster_e2e.objects import CRD
from paternoster_operator.api.rules import OBJECT_RULES, SPEC_RULES
from paternoster_operator.api.runtime_rules import RUNTIME_RULES

Manifest = Callable[..., Document]

API_WORDS = {
    "is missing": ("Required value",),
    "unknown field": ("unknown field",),
    "is": ("Invalid value", "Unsupported value", "Duplicate value", "Too many", "Too long"),
}
"""What a fault begins with in the manifest's own check -> what the API server calls it."""


def test_good_manifests_are_taken(kubectl: Kubectl, manifest: Manifest, good: dict[str, Any]) -> None:
    assert kubectl.refusal(manifest(**good)) == ""


def test_a_broken_rule_is_refused_with_its_own_message(
    kubectl: Kubectl, manifest: Manifest, broken_rule: tuple[dict[str, Any], str]
) -> None:
    spec, line = broken_rule
    rule = rule_of(line)
    assert messages_in(kubectl.refusal(manifest(**spec))) == [rule.message]


def test_a_long_name_is_refused_with_the_rules_message(kubectl: Kubectl, manifest: Manifest) -> None:
    assert kubectl.refusal(manifest("x" * 50)) == ""
    (rule,) = (rule for rule in OBJECT_RULES if "characters" in rule.message)
    assert messages_in(kubectl.refusal(manifest("x" * 51))) == [rule.message]


def test_every_rule_is_in_the_cluster_and_broken_by_some_manifest(
    kubectl: Kubectl, namespace: str, broken_rules: list[tuple[dict[str, Any], str]]
) -> None:
    crd = json.loads(kubectl("get", "crd", CRD, "--output=json"))
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert rules_of(schema) == [(rule.expression, rule.message) for rule in OBJECT_RULES]
    assert rules_of(schema["properties"]["spec"]) == [(rule.expression, rule.message) for rule in SPEC_RULES]
    broken = {rule_of(line) for _, line in broken_rules}
    assert [rule for rule in SPEC_RULES if rule not in broken and rule not in RUNTIME_RULES] == []


def test_what_vllm_cannot_honour_is_refused_with_the_rules_message(kubectl: Kubectl, manifest: Manifest) -> None:
    broken = set()
    for name, case in CASES.items():
        spec = manifest_of_vllm(case)["spec"]
        refusal = kubectl.refusal(manifest(**spec))
        found = [rule.message for rule in RUNTIME_RULES if rule.message in refusal]
        assert len(found) <= 1, (name, found)
        broken.update(found)
    assert [rule.message for rule in RUNTIME_RULES if rule.message not in broken] == []


def test_a_bad_field_is_refused_by_its_path(
    kubectl: Kubectl, manifest: Manifest, bad_field: tuple[dict[str, Any], str]
) -> None:
    spec, line = bad_field
    path, fault, *_ = line.split(": ")
    refusal = kubectl.refusal(manifest(**spec))
    assert path in refusal
    words = next(words for begin, words in API_WORDS.items() if fault.startswith(begin))
    assert any(word in refusal for word in words), refusal


def test_a_time_zone_nobody_knows_is_taken(kubectl: Kubectl, manifest: Manifest) -> None:
    """A schema cannot know the time zones: the operator says that the spec is invalid."""
    timed = {"name": "a", "timezone": "Europe/Atlantis", "start": "08:00", "end": "18:00", "maxReplicas": 1}
    assert kubectl.refusal(manifest(autoscaling={"maxReplicas": 2, "schedules": [timed]})) == ""


def test_what_a_schema_cannot_know_is_taken(
    kubectl: Kubectl, manifest: Manifest, unseen_by_a_schema: tuple[dict[str, Any], str]
) -> None:
    """The operator says that the spec is invalid."""
    assert kubectl.refusal(manifest(**unseen_by_a_schema[0])) == ""


def messages_in(refusal: str) -> list[str]:
    """Our rules' messages in the API server's refusal."""
    return [rule.message for rule in (*SPEC_RULES, *OBJECT_RULES) if rule.message in refusal]


def rules_of(schema: Document) -> list[tuple[str, str]]:
    return [(rule["rule"], rule["message"]) for rule in schema.get("x-kubernetes-validations", [])]
