"""health.lua over the fixtures of its health_test.yaml, and the manifests around it."""

import json
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaError
from tests.gitops.argo import FOLDER, health

from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.types.status import LLMDeploymentStatus

TESTS = yaml.safe_load((FOLDER / "health_test.yaml").read_text(encoding="utf-8"))["tests"]
KEY = "resource.customizations.health.paternoster.dev_LLMDeployment"


def fixture(path: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / path).read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("case", TESTS, ids=[test["inputPath"].removeprefix("testdata/") for test in TESTS])
def test_health(case: dict[str, Any]) -> None:
    assert health(fixture(case["inputPath"]))._asdict() == {"message": "", **case["healthStatus"]}


def test_every_fixture_has_a_case_and_looks_as_the_operator_writes_it() -> None:
    paths = sorted(f"testdata/{file.name}" for file in (FOLDER / "testdata").iterdir())
    assert paths == sorted(test["inputPath"] for test in TESTS)
    for path in paths:
        document = fixture(path)
        LLMDeploymentStatus.model_validate(document.get("status", {}))
        if path == "testdata/invalid_spec.yaml":
            with pytest.raises(InvalidManifest, match=r"spec\.replicas: is -1: must be at least 0"):
                parse_resource(document)
        else:
            parse_resource(document)


def test_the_config_map_has_the_same_script() -> None:
    config = yaml.safe_load((FOLDER / "argocd-cm.yaml").read_text(encoding="utf-8"))
    assert config["data"] == {KEY: (FOLDER / "health.lua").read_text(encoding="utf-8")}


@pytest.mark.parametrize("use", ["string.len('')", "(''):len()", "math.max(1)", "io.stdout", "os.execute()"])
def test_scripts_run_with_the_libraries_that_argo_cd_opens(use: str) -> None:
    with pytest.raises(LuaError, match="attempt to index"):
        health({}, f"local _ = {use} return {{status = 'Healthy'}}")


def test_every_manifest_parses() -> None:
    for file in FOLDER.parent.rglob("*.yaml"):
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        assert all(documents), file
        if file.parent.name != "testdata" and file.name != "health_test.yaml":
            assert all({"apiVersion", "kind", "metadata"} <= document.keys() for document in documents), file


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize(("mode", "keeps_replicas"), [("External", False), ("Auto", True)])
def test_replicas_are_ignored_in_external_mode_only(mode: str, keeps_replicas: bool) -> None:
    application = yaml.safe_load((FOLDER / "application-fleets.yaml").read_text(encoding="utf-8"))
    (expression,) = application["spec"]["ignoreDifferences"][0]["jqPathExpressions"]
    document = {"spec": {"replicas": 3, "autoscaling": {"mode": mode}}}
    # Argo CD deletes what the path expression names before it compares
    command = ["jq", f"del({expression})"]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=True)
    assert ("replicas" in json.loads(done.stdout)["spec"]) is keeps_replicas
