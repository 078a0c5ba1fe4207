"""What most suites make first: the CRD of this checkout, and namespaces that are gone afterwards."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

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
