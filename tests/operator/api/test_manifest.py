"""Bad manifests: one line a fault, with field, value and what is allowed. A real API server refuses the same ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.api.manifest import InvalidManifest, load, parse
from paternoster_operator.api.rules import OBJECT_RULES, SPEC_RULES

Document = Callable[..., dict[str, Any]]

GOOD: list[dict[str, Any]] = [
    {},
    {"replicas": 2},
    {"autoscaling": {"maxReplicas": 2}},
    {"replicas": 2, "autoscaling": {"maxReplicas": 2, "mode": "External"}},
    {"engine": {"maxNumSeqs": 8, "maxBatchedTokens": 8}},
    {"concurrency": {"mode": "Auto", "min": 2, "initial": 8, "max": 16}},
    {"rollout": {"maxSurge": 0, "maxUnavailable": 1}},
    {"budget": {"maxGPUs": 2}, "replicas": 2, "resources": {"gpu": {"count": 1}}},
    {"resources": {"limits": {"cpu": 1}}},
    {"resources": {"gpu": {"count": 1, "claimTemplateName": "one-gpu"}}},
]

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    (
        {"resources": {"gpu": {"claimTemplateName": "one-gpu"}}},
        "spec.resources.gpu.count: is 0: resources.gpu.count must say how many GPUs",
    ),
    (
        {"replicas": 2, "autoscaling": {"maxReplicas": 2}},
        "spec.replicas: is 2: replicas must be unset with autoscaling",
    ),
    ({"autoscaling": {"maxReplicas": 2, "mode": "External"}}, "spec.replicas: is unset: replicas must be set"),
    (
        {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}},
        "spec.autoscaling.minReplicas: is 5: autoscaling.minReplicas must be at most autoscaling.maxReplicas",
    ),
    (
        {"engine": {"maxBatchedTokens": 8}},
        "spec.engine.maxBatchedTokens: is 8: engine.maxBatchedTokens must be at least",
    ),
    ({"concurrency": {"max": 65}}, "spec.concurrency.max: is 65: concurrency.max must be at most engine.maxNumSeqs"),
    ({"concurrency": {"min": 65}}, "spec.concurrency.min: is 65: concurrency.min must be at most concurrency.max"),
    ({"concurrency": {"initial": 65}}, "spec.concurrency.initial: is 65: concurrency.initial must lie between"),
    ({"rollout": {"maxSurge": 0}}, "spec.rollout.maxSurge: is 0: rollout.maxSurge and rollout.maxUnavailable must not"),
    (
        {"budget": {"maxGPUs": 1}, "replicas": 2, "resources": {"gpu": {"count": 1}}},
        "spec.budget.maxGPUs: is 1: budget.maxGPUs must allow the GPUs of the fewest replicas",
    ),
]

BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"engine": {"maxSeqs": 3}}, "spec.engine.maxSeqs: unknown field: allowed here: blockSize, dtype,"),
    ({"tolerations": [{"taste": 1}]}, "spec.tolerations[0].taste: unknown field: allowed here: effect, key,"),
    ({"engine": {"maxNumSeqs": "x"}}, "spec.engine.maxNumSeqs: is 'x': must be a valid integer"),
    ({"engine": {"maxNumSeqs": 0}}, "spec.engine.maxNumSeqs: is 0: must be at least 1"),
    ({"engine": {"dtype": "int3"}}, "spec.engine.dtype: is 'int3': must be one of 'auto', 'bfloat16' or 'float32'"),
    ({"engine": {"kvCacheMemory": "much"}}, "spec.engine.kvCacheMemory: is 'much': must match"),
    ({"model": {"source": "hf://some/model"}}, "spec.model.source: is 'hf://some/model': must match"),
    ({"model": {}}, "spec.model.source: is missing: it is required"),
    ({"autoscaling": {}}, "spec.autoscaling.maxReplicas: is missing: it is required"),
    ({"replicas": -1}, "spec.replicas: is -1: must be at least 0"),
]


@pytest.mark.parametrize("spec", GOOD, ids=json.dumps)
def test_good_manifests_pass(document: Document, spec: dict[str, Any]) -> None:
    parse(document(**spec))


@pytest.mark.parametrize(("spec", "expected"), BROKEN_RULES + BAD_FIELDS, ids=[e for _, e in BROKEN_RULES + BAD_FIELDS])
def test_a_fault_is_one_clear_line(document: Document, spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse(document(**spec))
    (line,) = refused.value.errors
    assert line.startswith(expected)


def test_every_rule_is_broken_by_some_manifest(document: Document) -> None:
    said = ""
    for spec, _ in BROKEN_RULES:
        with pytest.raises(InvalidManifest) as refused:
            parse(document(**spec))
        said += str(refused.value)
    assert [rule.message for rule in SPEC_RULES if rule.message not in said] == []
    assert len(OBJECT_RULES) == 1, "the rule on the name has a test of its own"


def test_a_long_name_is_refused(document: Document) -> None:
    with pytest.raises(InvalidManifest, match=r"metadata\.name"):
        parse(document() | {"metadata": {"name": "x" * 51}})


def test_all_faults_are_told_at_once(document: Document) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse(document(replicas=-1, engine={"dtype": "x", "nope": 1}) | {"kind": "Lift"})
    assert len(refused.value.errors) == 4


@pytest.mark.parametrize("wrong", [None, [], "text", 3])
def test_a_document_that_is_no_mapping(wrong: Any) -> None:
    with pytest.raises(InvalidManifest, match="must be a mapping"):
        parse(wrong)


def test_files(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "fleet.yaml"
    with pytest.raises(InvalidManifest, match=r"fleet\.yaml: No such file"):
        load(file)
    file.write_text("a: [")
    with pytest.raises(InvalidManifest, match="is not YAML"):
        load(file)
    file.write_text("---\n")
    with pytest.raises(InvalidManifest, match="has no document"):
        load(file)
    second = document() | {"metadata": {"name": "other"}}
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(second)}\n")
    assert [resource.metadata.name for resource in load(file)] == ["ride", "other"]
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(document(replicas=-1))}\n")
    with pytest.raises(InvalidManifest, match=r"document 2: spec\.replicas: is -1"):
        load(file)
    file.write_text(f"{json.dumps(document())}\n---\n{json.dumps(document())}\n")
    with pytest.raises(InvalidManifest, match="lifts/ride stands more than once"):
        load(file)


@pytest.mark.parametrize("example", sorted(Path(__file__).parents[3].glob("examples/*.yaml")), ids=lambda p: p.name)
def test_the_examples_are_valid(example: Path) -> None:
    assert load(example)
