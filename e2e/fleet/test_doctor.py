"""``paternoster doctor`` reads the operators of an installation through the API server's proxy of pods."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.release import SYSTEM

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(sys.executable).with_name("paternoster")


def run_doctor(kubectl: Kubectl, namespace: str) -> "subprocess.CompletedProcess[str]":
    command = [str(PROGRAM), "doctor", f"--namespace={namespace}", "--output=json"]
    return subprocess.run(command, env=kubectl.environment, capture_output=True, text=True, timeout=120)


@pytest.mark.usefixtures("gateway")
def test_the_operators_of_an_installation_are_read(kubectl: Kubectl) -> None:
    done = run_doctor(kubectl, SYSTEM)
    # A shared node may be what holds the operator up; the command says so then.
    assert done.returncode in (0, 1), done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    pods = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=operator")
    assert list(summary["operators"]) == [pod["metadata"]["name"] for pod in pods]
    assert not [each for each in summary["findings"] if "cannot be read" in each["seen"]]
    assert summary["figures"]


def test_a_namespace_without_operators_is_named(kubectl: Kubectl) -> None:
    done = run_doctor(kubectl, "default")
    assert done.returncode == 2
    assert "namespace default" in done.stderr
