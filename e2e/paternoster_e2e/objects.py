"""What suites make beside fleets: the CRD of this checkout, namespaces, volumes, a Deployment that a fleet observes."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, Kubectl

CRD = "llmdeployments.paternoster.dev"
CRD_FILE = ROOT / "crds" / "paternoster.dev_llmdeployments.yaml"
TARGET = "chat"
TARGET_PORT = 9000
"""No engine of the operator's has it: its NetworkPolicy allows it by ``operator.networkPolicy.extraEgress`` alone."""
TARGET_EGRESS = f"operator.networkPolicy.extraEgress[0].ports[0].port={TARGET_PORT}"


def apply_crd(kubectl: Kubectl) -> None:
    """Install it, or bring it up to this checkout; returns when it is served. It stays, as the chart's does."""
    kubectl("apply", "--server-side", "--field-manager=e2e", "--force-conflicts", f"--filename={CRD_FILE}")
    kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")


@contextmanager
def scratch_namespace(kubectl: Kubectl, prefix: str) -> Iterator[str]:
    """A namespace with a name of its own; the end does not wait until it is gone."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def merge(kubectl: Kubectl, kind: str, namespace: str, name: str, patch: Document, *words: str) -> None:
    """Merge ``patch`` into an object; ``--subresource=status`` among ``words`` writes its status."""
    body = json.dumps(patch)
    kubectl("patch", kind, name, f"--namespace={namespace}", "--type=merge", f"--patch={body}", *words)


def model_volume(namespace: str, folder: Path) -> Document:
    """A PersistentVolume with ``folder`` of the node on it, for the claim ``models`` of ``namespace``."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "claimRef": {"namespace": namespace, "name": "models"},
        "hostPath": {"path": str(folder)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": spec}


def model_claim(namespace: str) -> Document:
    """The claim ``models`` for :func:`model_volume`."""
    spec = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": namespace,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": "models", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def make_deployment(fleet: Fleet, image: str, command: Sequence[str], *, replicas: int, node: str, health: str) -> None:
    """Deployment :data:`TARGET` in the fleet's namespace, with the claim ``models`` at /models."""
    fleet.kubectl.apply(model_claim(fleet.namespace))
    security = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "Never",
        "command": [*command],
        "ports": [{"containerPort": TARGET_PORT}],
        "env": [
            {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "HOME", "value": "/tmp"},
        ],
        "readinessProbe": {"httpGet": {"path": health, "port": TARGET_PORT}, "periodSeconds": 2},
        "securityContext": security,
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }  # fmt: skip
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 2,
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            {"name": "tmp", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }  # fmt: skip
    labels = {"app": TARGET}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": TARGET, "namespace": fleet.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    fleet.kubectl.apply(deployment)


def observe(fleet: Fleet, runtime: str, max_num_seqs: int) -> None:
    """Apply an LLMDeployment that observes the Deployment."""
    document = fleet.document(
        model={"source": "hf://org/name"},
        targetRef={"name": TARGET, "port": TARGET_PORT},
        autoscaling={"maxReplicas": 8, "mode": "Advisory"},
        concurrency={"objective": "PreemptionRate"},
    )
    document["spec"]["engine"] = {"maxNumSeqs": max_num_seqs, "runtime": {"type": runtime}}
    del document["spec"]["resources"]
    fleet.kubectl.apply(document)


def read_deployment(fleet: Fleet) -> Document:
    return fleet.kubectl.get("deployment", TARGET, fleet.namespace)


def list_writers(fleet: Fleet, kind: str) -> set[str]:
    """The field managers of all objects of that kind in the fleet's namespace."""
    items = json.loads(fleet("get", kind, "--show-managed-fields", "--output=json"))["items"]
    return {each["manager"] for item in items for each in item["metadata"].get("managedFields", ())}


def list_addresses(fleet: Fleet) -> list[str]:
    """Base URLs of the pods that serve."""
    pods = fleet.kubectl.list("pods", fleet.namespace, f"app={TARGET}")
    return [f"http://{pod['status']['podIP']}:{TARGET_PORT}" for pod in pods if "podIP" in pod["status"]]
