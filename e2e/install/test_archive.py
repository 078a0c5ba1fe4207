"""The chart as an archive in a registry: pushed, and installed from there."""

import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from paternoster_e2e.kubectl import CommandError, Kubectl
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import CHART, RELEASE, SYSTEM

CRD = "llmdeployments.paternoster.dev"
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """An OCI registry without TLS; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "registry.yaml"
    config.write_text(CONFIG.format(folder=tmp_path / "registry", port=port))
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, (tmp_path / "registry.log").read_text()
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_install_from_a_registry(kubectl: Kubectl, namespaces: None, registry: str, tmp_path: Path) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["version"]
    kubectl.helm("package", str(CHART), f"--destination={tmp_path}")
    archive = tmp_path / f"paternoster-{version}.tgz"
    with tarfile.open(archive) as opened:
        names = set(opened.getnames())
    assert "paternoster/values.schema.json" in names
    assert "paternoster/templates/crds/paternoster.dev_llmdeployments.yaml" in names
    kubectl.helm("push", str(archive), f"oci://{registry}/charts", "--plain-http")
    chart = [f"oci://{registry}/charts/paternoster", f"--version={version}", "--plain-http", f"--namespace={SYSTEM}"]
    with pytest.raises(CommandError, match="/gateway/replicas"):
        kubectl.helm("install", RELEASE, *chart, "--set-string=gateway.replicas=two")
    kubectl.helm("install", RELEASE, *chart, "--take-ownership", "--wait", "--timeout=120s")
    assert kubectl.get("customresourcedefinition", CRD)["metadata"]["labels"]["helm.sh/chart"].endswith(version)
    kubectl.helm("test", RELEASE, f"--namespace={SYSTEM}")
    kubectl.apply(fleet_document())
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=120s")
