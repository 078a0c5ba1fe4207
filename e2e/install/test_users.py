"""Pods as a user whom no image has, as OpenShift chooses one for each namespace."""

import httpx
import pytest

from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import RELEASE, SYSTEM, gateway_url, install

USER = 1000660000
pytestmark = pytest.mark.timeout(600)


def test_any_user_runs_the_images(kubectl: Kubectl, namespaces: None) -> None:
    """User and group of the namespace's range; the group of processes is root's, as OpenShift has it."""
    context = {"runAsUser": USER, "runAsGroup": 0, "fsGroup": USER}
    install(kubectl, *(f"podSecurityContext.{name}={value}" for name, value in context.items()))
    kubectl.helm("test", RELEASE, f"--namespace={SYSTEM}")
    kubectl.apply(fleet_document())
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=150s", timeout=160)
    for namespace, name in (
        (SYSTEM, f"deploy/{RELEASE}-operator"),
        (SYSTEM, f"deploy/{RELEASE}-gateway"),
        (NAMESPACE, f"deploy/{NAME}"),
    ):
        printed = kubectl(
            "exec", f"--namespace={namespace}", name, "--", "sh", "-c", "id -u; touch $HOME/it && echo $HOME"
        )
        assert printed.split() == [str(USER), "/tmp"], name
    body = {"model": NAME, "prompt": "up", "max_tokens": 2}
    until(lambda: httpx.post(f"{gateway_url(kubectl)}/v1/completions", json=body, timeout=60).is_success, "an answer")
