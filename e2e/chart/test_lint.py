"""kube-score and checkov find nothing but what accepted.yaml gives a reason for, and all of that.

Judged are the chart with default values, the chart with everything on, and what the operator makes of each example.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paternoster_e2e.artifacts.components import MissingComponent
from paternoster_e2e.artifacts.linters import Finding, Linters, ensure_linters
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.network_policy import Peers

ACCEPTED = Path(__file__).with_name("accepted.yaml")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROOTS = RootKeys(admin=["root of the operator's keys"], gateway=["root of the gateways' keys"])
PEERS = Peers("paternoster-system", {"app": "operator"}, {"app": "gateway"})
EVERYTHING = {
    "gateway": {
        "autoscaling": {"enabled": True},
        "ingress": {"enabled": True, "tls": [{"secretName": "edge", "hosts": ["llm.example.com"]}]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
        "tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "internal-ca"}}},
    },
    "monitoring": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "grafanaDashboard")},
}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def linters() -> Linters:
    try:
        return ensure_linters()
    except MissingComponent as error:
        pytest.fail(str(error)) if os.environ.get("REQUIRE_COMPONENTS") else pytest.skip(str(error))


def children() -> Iterable[dict[str, Any]]:
    """Children of each example that has any, under its file's name."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        document = yaml.safe_load(file.read_text("utf-8"))
        document["metadata"] |= {"name": file.stem, "namespace": "llm", "uid": f"uid-of-{file.stem}"}
        resource = parse_resource(document)
        if resource.spec.target_ref is None:
            auto = resource.spec.autoscaling
            replicas = resource.spec.replicas if auto is None else max(1, auto.min_replicas)
            yield from build_children(resource, replicas, ROOTS, peers=PEERS)


def accepted() -> set[Finding]:
    entries = yaml.safe_load(ACCEPTED.read_text("utf-8"))
    assert all(entry["why"].strip() for entry in entries)
    listed = [Finding(entry["tool"], entry["check"], name) for entry in entries for name in entry["objects"]]
    assert len(listed) == len(set(listed)), "an entry is there twice"
    return set(listed)


def differences(found: set[Finding], accepted_findings: set[Finding]) -> str:
    """Empty where both are the same."""
    lines = [f"new: {finding}" for finding in sorted(found - accepted_findings)]
    return "\n".join(lines + [f"no longer found: {finding}" for finding in sorted(accepted_findings - found)])


def test_every_finding_is_accepted_and_every_accepted_one_is_found(helm: Any, linters: Linters, tmp_path: Path) -> None:
    found: set[Finding] = set()
    for documents in (helm.render(), helm.render(EVERYTHING), list(children())):
        judged = [d for d in documents if d["kind"] != "CustomResourceDefinition"]
        found |= linters.findings(judged, tmp_path)
    if changes := differences(found, accepted()):
        pytest.fail(changes)


def test_the_linters_see_what_is_wrong(helm: Any, linters: Linters, tmp_path: Path) -> None:
    documents = [d for d in helm.render() if d["metadata"]["name"] == "fleet-paternoster-gateway"]
    sound = linters.findings(documents, tmp_path)
    (deployment,) = (d for d in documents if d["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    new = {(finding.tool, finding.check.partition(":")[0]) for finding in linters.findings(documents, tmp_path) - sound}
    assert {("kube-score", "container-security-context-privileged"), ("checkov", "CKV_K8S_16")} <= new


def test_the_docs_have_a_reason_for_each_check(root: Path) -> None:
    text = (root / "docs" / "kubernetes.md").read_text("utf-8")
    for finding in accepted():
        assert f"`{finding.check.partition(':')[0]}`" in text, finding


def test_a_new_finding_and_one_that_is_gone_are_both_told() -> None:
    old, new = Finding("checkov", "A: a", "Pod/x"), Finding("checkov", "B: b", "Pod/x")
    assert differences({old}, {old}) == ""
    assert differences({old, new}, {old}) == f"new: {new}"
    assert differences(set(), {old}) == f"no longer found: {old}"
