"""The chart as a test installs it, and the namespaces it works in."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prometheus_client.parser import text_string_to_metric_families

from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.kubectl import CommandError, Kubectl, until

CHART = ROOT / "charts" / "paternoster"
RELEASE = "paternoster"
SYSTEM = "paternoster-system"
STATS_PORT = 8081
"""Port of the gateway's own metrics."""
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@contextmanager
def restricted_namespace(kubectl: Kubectl, name: str) -> Iterator[str]:
    """A namespace under the restricted pod security standard, for as long as the block runs."""
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, RESTRICTED)
    try:
        yield name
    finally:
        empty(kubectl, name)
        kubectl("delete", "namespace", name, "--wait", timeout=300)


def empty(kubectl: Kubectl, namespace: str) -> None:
    """End every fleet and pod of ``namespace``.

    A namespace with pods in it is looked at again after half their grace period, which is minutes here.
    """
    with suppress(CommandError):  # where there is no such kind, there is none of it
        kubectl("delete", "llmd", "--all", f"--namespace={namespace}")
    kubectl("delete", "deployments,jobs", "--all", f"--namespace={namespace}")
    kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--wait=false")
    until(lambda: not kubectl.list("pods", namespace), f"no pod in {namespace}", 120)


def install(kubectl: Kubectl, *values: str, timeout: str = "120s") -> None:
    """``helm install`` with ``--set`` of each of ``values``; returns when operator and gateway are ready."""
    options = [f"--set={value}" for value in values]
    # The CRD of an earlier installation is kept on purpose; this release takes it over.
    kubectl.helm(
        "install", RELEASE, str(CHART), f"--namespace={SYSTEM}", "--take-ownership", "--wait", f"--timeout={timeout}",
        *options,
    )  # fmt: skip


def uninstall(kubectl: Kubectl) -> None:
    kubectl.helm("uninstall", RELEASE, f"--namespace={SYSTEM}", "--wait")


@contextmanager
def installed(kubectl: Kubectl, *values: str) -> Iterator[str]:
    """The chart in :data:`SYSTEM` while the block runs; yields the gateway's URL."""
    with restricted_namespace(kubectl, SYSTEM):
        try:
            install(kubectl, *values)
            yield gateway_url(kubectl)
        finally:
            uninstall(kubectl)


def gateway_url(kubectl: Kubectl) -> str:
    """URL that is reached from the node."""
    host, port = gateway_address(kubectl)
    return f"http://{host}:{port}"


def gateway_address(kubectl: Kubectl) -> tuple[str, int]:
    """Address of its Service that is reached from the node; raises :class:`CommandError` when there is none."""
    spec = kubectl.get("service", f"{RELEASE}-gateway", SYSTEM)["spec"]
    return spec["clusterIP"], spec["ports"][0]["port"]


def nothing_left(kubectl: Kubectl, namespace: str, seconds: float = 90) -> None:
    """Wait until nothing that the operator made is in ``namespace``."""
    kinds = "deployments,replicasets,pods,services,poddisruptionbudgets"
    selector = "app.kubernetes.io/managed-by=paternoster"
    until(lambda: not kubectl.list(kinds, namespace, selector), f"nothing left in {namespace}", seconds)


def drained_streams(kubectl: Kubectl) -> float:
    """Streams that went on elsewhere because their replica was to end, by the only gateway's count."""
    [pod] = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=gateway")
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:{STATS_PORT}/proxy/metrics"
    samples = (
        sample
        for family in text_string_to_metric_families(kubectl("get", "--raw", path))
        for sample in family.samples
        if sample.name == "paternoster_gateway_continued_streams_total"
    )
    return sum(sample.value for sample in samples if sample.labels["reason"] == "drained")
