"""The chart, rendered by Helm."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "paternoster"
RELEASE = ("fleet", "lifts")
"""The release's name and namespace."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    """``helm`` over this chart; values go in as a file, so that their types are kept."""

    program: str
    folder: Path

    def run(self, command: Sequence[str], values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        file = self.folder / "values.json"
        file.write_text(json.dumps(values), encoding="utf-8")
        # no cluster and no settings of the user who runs the tests
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": os.devnull}
        return subprocess.run(
            [self.program, *command, "--values", file], capture_output=True, text=True, env=environment, timeout=60
        )

    def text(self, values: Mapping[str, Any] | None = None) -> str:
        """What ``helm template`` prints."""
        done = self.run(["template", RELEASE[0], str(CHART), "--namespace", RELEASE[1]], values or {})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def render(self, values: Mapping[str, Any] | None = None) -> list[Document]:
        return parse_documents(self.text(values))

    def refusal(self, values: Mapping[str, Any]) -> str:
        """What Helm says to values that it must refuse."""
        done = self.run(["template", RELEASE[0], str(CHART), "--namespace", RELEASE[1]], values)
        assert done.returncode != 0, f"accepted {values}"
        return done.stderr


def parse_documents(rendered: str) -> list[Document]:
    """Parse with libyaml: parsing in Python took twice as long as rendering."""
    return [document for document in yaml.load_all(rendered, yaml.CSafeLoader) if document]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    program = shutil.which(os.environ.get("HELM", "helm"))
    if program is None:
        reason = "no helm: put it on PATH, or name it in HELM"
        if os.environ.get("REQUIRE_COMPONENTS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Helm(program, tmp_path)


@pytest.fixture(scope="session")
def promtool() -> Callable[..., None]:
    """``promtool(*arguments, cwd=...)``; fails with what it prints."""
    program = shutil.which("promtool")
    if program is None:
        reason = "no promtool: it comes with Prometheus"
        if os.environ.get("REQUIRE_COMPONENTS"):
            pytest.fail(reason)
        pytest.skip(reason)

    def run(*arguments: str, cwd: Path) -> None:
        ran = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def chart() -> Path:
    return CHART
