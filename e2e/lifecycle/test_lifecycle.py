"""A fleet from install to removal: a manifest, an answer, load, decisions, quiet, and away again without a trace."""

import subprocess
import sys
from pathlib import Path

import pytest

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.load import streams
from paternoster_e2e.release import RELEASE, SYSTEM, gateway_url, install, nothing_left, restricted_namespace, uninstall

pytestmark = pytest.mark.timeout(1200)

PATERNOSTER = Path(sys.executable).with_name("paternoster")
NAME = "smollm2"
NAMESPACE = "lifecycle"
CHAT_SCRIPT = """
import json, urllib.request
body = {"model": "smollm2", "messages": [{"role": "user", "content": "What is the capital of Japan?"}],
        "max_tokens": 24, "temperature": 0}
request = urllib.request.Request("http://paternoster-gateway.paternoster-system/v1/chat/completions",
                                 json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]["content"])
"""


def asking_pod() -> Document:
    """A client inside the cluster, which finds the gateway by its Service's name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client", "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "client",
                    "image": "paternoster-gateway:0.2.0",
                    "command": ["python3", "-c", CHAT_SCRIPT],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def test_from_apply_to_delete(kubectl: Kubectl) -> None:
    with restricted_namespace(kubectl, SYSTEM), restricted_namespace(kubectl, NAMESPACE):
        install(kubectl)
        kubectl.helm("test", RELEASE, f"--namespace={SYSTEM}")
        kubectl("apply", f"--namespace={NAMESPACE}", f"--filename={ROOT / 'examples' / 'smollm2.yaml'}")
        kubectl(
            "wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=180s", timeout=200
        )
        a_plan(kubectl)
        an_answer_inside(kubectl)
        a_rollout_under_load(kubectl)
        a_burst(kubectl)
        away(kubectl)


def fleet(kubectl: Kubectl) -> Document:
    return kubectl.get("llmd", NAME, NAMESPACE)


def a_plan(kubectl: Kubectl) -> None:
    """The plan of the manifest that is applied is empty, and that of another one has what it changes."""
    operator = kubectl.get("deployment", "paternoster-operator", SYSTEM)
    flags = operator["spec"]["template"]["spec"]["containers"][0]["args"][1:]

    def plan(manifest: str) -> str:
        words = ["plan", f"--file={ROOT / 'examples' / manifest}", f"--namespace={NAMESPACE}", "--", *flags]
        done = subprocess.run([PATERNOSTER, *words], env=kubectl.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert plan("smollm2.yaml") == f"LLMDeployment {NAMESPACE}/{NAME}: nothing would be changed\n"
    changes = plan("demo.yaml").splitlines()
    assert [line for line in changes if line.startswith("  change ")] == [f"  change Deployment {NAMESPACE}/{NAME}"]


def an_answer_inside(kubectl: Kubectl) -> None:
    kubectl.apply(asking_pod())
    until(lambda: kubectl.get("pod", "client", NAMESPACE)["status"]["phase"] in ("Succeeded", "Failed"), "asked", 120)
    assert "Tokyo" in kubectl("logs", "client", f"--namespace={NAMESPACE}")


def a_rollout_under_load(kubectl: Kubectl) -> None:
    """A changed engine replaces the old one, and no stream breaks."""
    before = kubectl.list("pods", NAMESPACE, f"app.kubernetes.io/instance={NAME}")[0]["metadata"]["name"]
    with streams(gateway_url(kubectl), NAME, 2) as load:
        until(lambda: load.completed > 0 or load.dropped, "a first stream", 120)
        kubectl("apply", f"--namespace={NAMESPACE}", f"--filename={ROOT / 'examples' / 'demo.yaml'}")
        until(lambda: condition(fleet(kubectl), "Reconciling").get("reason") == "RollingOut", "a rollout begins")
        pods = f"app.kubernetes.io/instance={NAME}"
        until(
            lambda: before not in [pod["metadata"]["name"] for pod in kubectl.list("pods", NAMESPACE, pods)],
            "the old pod is gone", 240,
        )  # fmt: skip
        until(lambda: not condition(fleet(kubectl), "Reconciling"), "settled", 120)
    assert load.dropped == []
    assert condition(fleet(kubectl), "Ready")["status"] == "True"


def a_burst(kubectl: Kubectl) -> None:
    """Load changes cap and replicas, each with a reason; quiet brings one replica back; every request ends well."""
    url = gateway_url(kubectl)
    with streams(url, NAME, 1) as steady:
        with streams(url, NAME, 40, prompt_words=120, max_tokens=160) as burst:
            until(lambda: fleet(kubectl)["status"]["concurrency"]["target"] < 16, "the cap is cut", 240)
            until(lambda: fleet(kubectl)["status"]["readyReplicas"] == 2, "a second replica serves", 240)
            table = kubectl("get", "llmd", NAME, f"--namespace={NAMESPACE}")
            assert table.splitlines()[1].split()[:5] == [NAME, "True", "MinimumReplicasAvailable", "2", "2"], table
        described = kubectl("describe", "llmd", NAME, f"--namespace={NAMESPACE}")
        assert "ScaledUp" in described, described
        assert "LiveCapLowered" in described
        assert "replicas 1->2: demand" in described
        until(lambda: fleet(kubectl)["status"]["desiredReplicas"] == 1, "the fleet shrinks", 300)
        until(lambda: fleet(kubectl)["status"]["replicas"] == 1, "one pod is left", 120)
        until(lambda: fleet(kubectl)["status"]["drainingReplicas"] == 0, "the drain has ended", 120)
    assert burst.dropped == []
    assert steady.dropped == []
    assert burst.completed > 0


def away(kubectl: Kubectl) -> None:
    """Uninstalling keeps the fleet; deleting the fleet, with no operator there, leaves nothing."""
    uninstall(kubectl)
    assert fleet(kubectl)["metadata"]["name"] == NAME
    assert len(kubectl.list("pods", NAMESPACE, f"app.kubernetes.io/instance={NAME}")) == 1
    kubectl("delete", "llmd", NAME, f"--namespace={NAMESPACE}")
    nothing_left(kubectl, NAMESPACE)
