"""HTTPS at the gateway of a cluster, from a Secret that is renewed while it is used."""

import base64
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.outage import NAME, NAMESPACE, fleet_document
from paternoster_e2e.release import CHART, RELEASE, SYSTEM, gateway_url

SECRET = "certificate"
NAMES = f"{RELEASE}-gateway.{SYSTEM}.svc"
# A kubelet looks at mounted Secrets once a minute or so.
RENEWED_SECONDS = 180
pytestmark = pytest.mark.timeout(600)


def issue(kubectl: Kubectl, authority: trustme.CA, address: str) -> None:
    """Put a new pair into the Secret, as cert-manager does."""
    issued = authority.issue_cert(NAMES, address)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    pair = {"tls.crt": chain, "tls.key": issued.private_key_pem.bytes()}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": SECRET, "namespace": SYSTEM},
            "data": {name: base64.b64encode(value).decode() for name, value in pair.items()},
        }
    )


def models(url: str, authority: trustme.CA) -> list[str]:
    """On a connection of its own; empty where the certificate is not trusted."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        answer = httpx.get(f"{url}/v1/models", verify=context, timeout=10)
    except httpx.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return []
        raise
    return [model["id"] for model in answer.raise_for_status().json()["data"]]


def restarts(kubectl: Kubectl) -> dict[str, int]:
    pods = kubectl.list("pods", SYSTEM, "app.kubernetes.io/component=gateway")
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_a_renewed_certificate_reaches_clients_without_a_restart(
    kubectl: Kubectl, namespaces: None, tmp_path: Path
) -> None:
    values = ["gateway.tls.enabled=true", f"gateway.tls.secretName={SECRET}", "gateway.service.port=443"]
    options = [f"--namespace={SYSTEM}", "--take-ownership", *(f"--set={value}" for value in values)]
    first, second = trustme.CA(), trustme.CA()
    kubectl.helm("install", RELEASE, str(CHART), *options)
    # its address is in the certificate, as tests ask by it
    address = gateway_url(kubectl).removeprefix("http://").partition(":")[0]
    url = f"https://{address}"
    issue(kubectl, first, address)
    kubectl(
        "rollout", "status", f"deployment/{RELEASE}-gateway", f"--namespace={SYSTEM}", "--timeout=200s", timeout=220
    )
    kubectl.helm("test", RELEASE, f"--namespace={SYSTEM}")
    kubectl.apply(fleet_document())
    kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", f"llmd/{NAME}", "--timeout=120s")
    until(lambda: models(url, first) == [NAME], "the fleet is served by HTTPS")
    assert kubectl.get("llmd", NAME, NAMESPACE)["status"]["endpoint"].startswith(f"https://{NAMES}")
    before = restarts(kubectl)
    issue(kubectl, second, address)
    # Both pods, one of which a connection reaches by chance.
    until(lambda: all(models(url, second) for _ in range(12)), "the new certificate is served", RENEWED_SECONDS)
    assert models(url, first) == []
    assert restarts(kubectl) == before
