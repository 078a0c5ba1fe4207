"""The chart as files: lint, generated parts, versions."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from paternoster_operator.api.manifest import parse_resource


def test_lint(helm: Any, chart: Path) -> None:
    done = helm.run(["lint", "--strict", str(chart)], {})
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_files_are_up_to_date(root: Path) -> None:
    done = subprocess.run([sys.executable, root / "scripts/chart", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_chart_installs_the_version_it_stands_beside(root: Path, chart: Path) -> None:
    described = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    assert f'\nversion = "{described["appVersion"]}"\n' in (root / "pyproject.toml").read_text("utf-8")


def test_a_catalogue_has_what_it_shows(chart: Path, root: Path) -> None:
    described = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    assert all(described[key] for key in ("home", "sources", "maintainers", "icon", "keywords", "kubeVersion"))
    scheme, _, image = described["icon"].partition(";base64,")
    assert scheme == "data:image/svg+xml"
    assert base64.b64decode(image) == (chart / "icon.svg").read_bytes()
    notes = {key.partition("/")[2]: value for key, value in described["annotations"].items()}
    assert (notes["license"], notes["operator"]) == ("Apache-2.0", "true")
    assert {change["kind"] for change in yaml.safe_load(notes["changes"])} <= {"added", "changed", "fixed", "removed"}
    assert [crd["name"] for crd in yaml.safe_load(notes["crds"])] == ["llmdeployments.paternoster.dev"]
    assert {image["name"] for image in yaml.safe_load(notes["images"])} == {"engine", "gateway", "operator"}
    examples = yaml.safe_load(notes["crdsExamples"])
    assert {example["kind"] for example in examples} == {"LLMDeployment"}
    for example in examples:
        assert parse_resource(example), "it keeps the rules"


def test_nothing_depends_on_time_chance_or_a_cluster(chart: Path) -> None:
    text = "".join(path.read_text("utf-8") for path in (chart / "templates").rglob("*") if path.is_file())
    for word in ("lookup ", "randAlpha", "randNumeric", "randAscii", "uuidv4", "genCA", "genSignedCert", " now"):
        assert f"{{{{ {word}" not in text
        assert f"({word}" not in text
