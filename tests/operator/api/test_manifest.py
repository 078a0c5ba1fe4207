"""Bad manifests: one line a fault, with field, value and what is allowed. A real API server refuses the same ones."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.operator.api.good_and_bad_manifests import BAD_FIELDS, BROKEN_RULES, GOOD, UNSEEN_BY_A_SCHEMA, schedule
from tests.operator.api.rule_lines import rule_of

from paternoster_operator.api.manifest import InvalidManifest, load_resources, load_secrets, parse_resource
from paternoster_operator.api.rules import OBJECT_RULES, SPEC_RULES
from paternoster_operator.api.runtime_rules import RUNTIME_RULES

EXAMPLES = Path(__file__).parents[3] / "examples"

Document = Callable[..., dict[str, Any]]
FAULTS = BROKEN_RULES + BAD_FIELDS + UNSEEN_BY_A_SCHEMA


@pytest.mark.parametrize("spec", GOOD, ids=json.dumps)
def test_good_manifests_pass(document: Document, spec: dict[str, Any]) -> None:
    parse_resource(document(**spec))


@pytest.mark.parametrize(("spec", "expected"), FAULTS, ids=[expected for _, expected in FAULTS])
def test_a_fault_is_one_clear_line(document: Document, spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse_resource(document(**spec))
    (line,) = refused.value.errors
    assert line.startswith(expected)


def test_rules_are_checked_beside_the_cel_package_of_envoys_messages() -> None:
    """xds-protos has an empty ``cel/__init__.py``, which stays where that package is installed last."""
    program = """if True:
        import importlib.util, sys, types
        package = types.ModuleType("cel")
        package.__path__ = list(importlib.util.find_spec("cel").submodule_search_locations)
        sys.modules["cel"] = package
        from paternoster_operator.api.manifest import parse_resource
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_rule_is_broken_by_some_manifest() -> None:
    broken = {rule_of(line) for _, line in BROKEN_RULES}
    others = [rule for rule in SPEC_RULES if rule not in RUNTIME_RULES]
    assert [rule for rule in others if rule not in broken] == [], "those of runtimes have a golden file"
    assert {rule.field for rule in OBJECT_RULES} == {"metadata.name", "spec.adapters"}, "names have a test of their own"


@pytest.mark.parametrize("name", ["x" * 51, "7b-chat", "-a", "a-", "a.", "Llama", "a_b"])
def test_a_name_that_no_service_could_have_is_refused(document: Document, name: str) -> None:
    with pytest.raises(InvalidManifest, match=r"metadata\.name"):
        parse_resource(document() | {"metadata": {"name": name}})


@pytest.mark.parametrize("name", ["llama-3.1-8b", "a", "x" * 50])
def test_dots_become_dashes_in_the_names_of_children(document: Document, name: str) -> None:
    fleet = parse_resource(document() | {"metadata": {"name": name}})
    assert fleet.child_name == name.replace(".", "-")
    assert fleet.served_name == name


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "posix"])
def test_an_unknown_time_zone_is_refused(document: Document, zone: str) -> None:
    """A schema cannot know them: a cluster takes the manifest, and the operator calls it invalid."""
    timed = schedule("a", maxReplicas=1, timezone=zone)
    with pytest.raises(InvalidManifest) as refused:
        parse_resource(document(autoscaling={"maxReplicas": 2, "schedules": [timed]}))
    (line,) = refused.value.errors
    assert line == (f"spec.autoscaling.schedules[0].timezone: is '{zone}': must be a time zone of the IANA database")


def test_all_faults_are_told_at_once(document: Document) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse_resource(document(replicas=-1, engine={"dtype": "x", "nope": 1}) | {"kind": "Lift"})
    assert len(refused.value.errors) == 4


@pytest.mark.parametrize("wrong", [None, [], "text", 3])
def test_a_document_that_is_no_mapping(wrong: Any) -> None:
    with pytest.raises(InvalidManifest, match="must be a mapping"):
        parse_resource(wrong)


def test_files(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "fleet.yaml"
    with pytest.raises(InvalidManifest, match=r"fleet\.yaml: No such file"):
        load_resources(file)
    file.write_text("a: [")
    with pytest.raises(InvalidManifest, match="is not YAML"):
        load_resources(file)
    file.write_text("---\n")
    with pytest.raises(InvalidManifest, match="has no LLMDeployment"):
        load_resources(file)
    second = document() | {"metadata": {"name": "other"}}
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(second)}\n")
    assert [resource.metadata.name for resource in load_resources(file)] == ["ride", "other"]
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(document(replicas=-1))}\n")
    with pytest.raises(InvalidManifest, match=r"document 2: spec\.replicas: is -1"):
        load_resources(file)
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(document())}\n")
    with pytest.raises(InvalidManifest, match="lifts/ride stands more than once"):
        load_resources(file)


@pytest.mark.parametrize(
    "example", sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("models/*.yaml")]), ids=lambda p: p.name
)
def test_the_examples_are_valid(example: Path) -> None:
    assert load_resources(example)


def test_rules_are_asked_again_of_another_spec_only(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_resource(document(replicas=2))
    with pytest.raises(InvalidManifest, match="must be unset with autoscaling"):
        parse_resource(document(replicas=2, autoscaling={"maxReplicas": 2}), parsed=parsed)
    monkeypatch.setattr("paternoster_operator.api.manifest.check_rules", lambda _: ["asked"])
    assert parse_resource({**document(replicas=2), "status": {"replicas": 1}}, parsed=parsed).status == {"replicas": 1}
    for other in (document(replicas=3), document(replicas=2) | {"metadata": {"name": "other", "namespace": "lifts"}}):
        with pytest.raises(InvalidManifest, match="asked"):
            parse_resource(other, parsed=parsed)


def test_secrets_stand_beside_fleets_in_a_file(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "fleet.yaml"
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients"}}
    secret = {**head, "data": {"a": "b25lCnR3bw=="}, "stringData": {"b": "three"}}
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(secret)}\n")
    assert [resource.metadata.name for resource in load_resources(file)] == ["ride"]
    assert load_secrets(file) == {("default", "clients"): {"a": "one\ntwo", "b": "three"}}
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps({**head, 'data': {'a': 'x'}})}\n")
    with pytest.raises(InvalidManifest, match=r"document 2: data\.a: is 'x': "):
        load_secrets(file)
    file.write_text(json.dumps(secret))
    with pytest.raises(InvalidManifest, match="has no LLMDeployment"):
        load_resources(file)
