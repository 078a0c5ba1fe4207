"""A release that is uninstalled leaves what docs/kubernetes.md lists, and nothing else."""

import re

import pytest

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import RELEASE, SYSTEM, install, uninstall

OF_KUBERNETES = {
    ("configmaps", "kube-root-ca.crt"),
    ("serviceaccounts", "default"),
    ("apiservices.apiregistration.k8s.io", "v1alpha1.paternoster.dev"),
}
"""Objects that every namespace has, or that the API server has for each CRD."""
MOMENTARY = {"events", "events.events.k8s.io", "pods.metrics.k8s.io"}
pytestmark = pytest.mark.timeout(600)


def read_listed() -> set[tuple[str, str]]:
    """Kinds and names of the table."""
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8").partition("### Uninstalling")[2]
    return set(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", page.partition("###")[0], re.MULTILINE))


def find_objects(kubectl: Kubectl, namespace: str) -> set[tuple[str, str]]:
    """Objects of every kind there."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    found = {
        (kind, each["metadata"]["name"]) for kind in {*kinds} - MOMENTARY for each in kubectl.list(kind, namespace)
    }
    return found - OF_KUBERNETES


def find_cluster_objects(kubectl: Kubectl) -> set[tuple[str, str]]:
    """Objects of every kind without a namespace whose names are of the release."""
    kinds = kubectl("api-resources", "--namespaced=false", "--verbs=list", "--output=name").split()
    found = {(kind, each["metadata"]["name"]) for kind in kinds for each in kubectl.list(kind)}
    return {(kind, name) for kind, name in found - OF_KUBERNETES if RELEASE in name and kind != "namespaces"}


def test_what_an_uninstalled_release_leaves_is_listed(kubectl: Kubectl, namespaces: None) -> None:
    install(kubectl)
    kubectl.apply(fleet_document())
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=150s", timeout=160)
    kubectl("delete", "llmd", "--all", f"--namespace={NAMESPACE}")
    until(lambda: not kubectl.list("pods", NAMESPACE), "no engine", 120)
    uninstall(kubectl)
    until(lambda: not kubectl.list("pods", SYSTEM), "no pod of the release", 120)
    assert find_objects(kubectl, SYSTEM) | find_cluster_objects(kubectl) == read_listed()
    assert find_objects(kubectl, NAMESPACE) == set()
