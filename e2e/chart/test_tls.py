"""TLS of the gateway: what changes for clients, and what does not for the operator."""

from typing import Any

import pytest

ISSUER = {"name": "internal-ca", "kind": "ClusterIssuer"}
NAME = "fleet-paternoster-gateway"
SERVICE = "fleet-paternoster-gateway.lifts.svc"


def only(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return found


def values(**more: Any) -> dict[str, Any]:
    return {"gateway": {"tls": {"enabled": True, "secretName": "certificate"}, **more}}


def container(documents: list[dict[str, Any]], component: str) -> dict[str, Any]:
    (found,) = only(documents, "Deployment", f"fleet-paternoster-{component}")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_clients_reach_https_and_the_kubelet_the_plain_port(helm: Any) -> None:
    documents = helm.render(values(ingress={"enabled": True}))
    (port,) = only(documents, "Service", NAME)["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("https", 80, "https")
    gateway = container(documents, "gateway")
    assert {p["name"]: p["containerPort"] for p in gateway["ports"]} == {"http": 8080, "stats": 8081, "https": 8443}
    assert gateway["readinessProbe"]["httpGet"]["port"] == gateway["livenessProbe"]["httpGet"]["port"] == "http"
    paths = only(documents, "Ingress", NAME)["spec"]["rules"][0]["http"]["paths"]
    assert [path["backend"]["service"]["port"] for path in paths] == [{"name": "https"}] * len(paths)
    allowed = only(documents, "NetworkPolicy", NAME)["spec"]["ingress"][0]["ports"]
    assert {p["port"] for p in allowed} == {"http", "https"}


def test_the_secret_is_mounted_where_the_gateway_reads_it(helm: Any) -> None:
    documents = helm.render(values())
    gateway = container(documents, "gateway")
    (mount,) = (m for m in gateway["volumeMounts"] if m["name"] == "tls")
    assert mount["readOnly"] is True
    assert f"--tls-cert={mount['mountPath']}/tls.crt" in gateway["args"]
    assert f"--tls-key={mount['mountPath']}/tls.key" in gateway["args"]
    volumes = only(documents, "Deployment", NAME)["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": "certificate"}} in volumes
    assert "subPath" not in mount, "a file mounted by subPath is never renewed"


@pytest.mark.parametrize(
    ("port", "tls", "url"),
    [
        (80, False, f"http://{SERVICE}"),
        (8000, False, f"http://{SERVICE}:8000"),
        (443, True, f"https://{SERVICE}"),
        (80, True, f"https://{SERVICE}:80"),
    ],
)
def test_the_operator_says_where_clients_go_and_asks_the_plain_port(helm: Any, port: int, tls: bool, url: str) -> None:
    gateway = {"service": {"port": port}, "tls": {"enabled": tls, "secretName": "certificate"}}
    args = container(helm.render({"gateway": gateway}), "operator")["args"]
    assert f"--endpoint={url}" in args
    assert f"--gateway-url=http://{NAME}-pods.lifts.svc:8081" in args


def test_cert_manager_makes_the_secret_that_is_mounted(helm: Any) -> None:
    tls = {"enabled": True, "certManager": {"enabled": True, "issuerRef": ISSUER, "dnsNames": ["llm.example.com"]}}
    documents = helm.render({"gateway": {"tls": tls}})
    certificate = only(documents, "Certificate", NAME)
    assert certificate["apiVersion"] == "cert-manager.io/v1"
    spec = certificate["spec"]
    assert spec["issuerRef"] == ISSUER
    assert spec["dnsNames"] == [NAME, f"{NAME}.lifts", SERVICE, "llm.example.com"]
    volumes = only(documents, "Deployment", NAME)["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": spec["secretName"]}} in volumes


def test_what_is_missing_is_named(helm: Any) -> None:
    assert "gateway.tls" in helm.refusal({"gateway": {"tls": {"enabled": True}}})
    manager = {"enabled": True, "certManager": {"enabled": True}}
    assert "gateway.tls.certManager.issuerRef" in helm.refusal({"gateway": {"tls": manager}})
