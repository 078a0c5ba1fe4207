"""What most suites make first: the CRD of this checkout, and namespaces that are gone afterwards."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.kubectl import Document, Kubectl

CRD = "llmdeployments.paternoster.dev"
CRD_FILE = ROOT / "crds" / "paternoster.dev_llmdeployments.yaml"


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
