"""Certificates and users of a cluster that lives for one run."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import trustme

from paternoster_e2e.cluster.network import FIRST, SECOND

USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    **{place.name: (f"system:node:{place.name}", "system:nodes") for place in (FIRST, SECOND)},
}
"""Who has a kubeconfig, as which user and in which group."""


@dataclass(frozen=True)
class Pki:
    """Files below one folder."""

    folder: Path
    server: str
    """URL of the API server."""

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    @classmethod
    def create(cls, folder: Path, server: str, identities: list[str]) -> "Pki":
        """A new authority; ``identities`` are the names and addresses of the API server."""
        folder.mkdir(parents=True)
        pki = cls(folder, server)
        authority = trustme.CA(organization_name="paternoster-e2e")
        authority.cert_pem.write_to_path(pki.ca)
        # The CA's key signs the certificates that controllers ask for.
        authority.private_key_pem.write_to_path(pki.key("ca"))
        pki._write("apiserver", authority.issue_cert(*identities))
        client = authority.issue_cert(
            "kubelet-client.invalid", common_name="kube-apiserver-kubelet-client", organization_name="system:masters"
        )
        pki._write("kubelet-client", client)
        pki._write("service-account", authority.issue_cert("service-account.invalid"))
        lines = []
        for user, (name, group) in USERS.items():
            lines.append(f'{user}-token,{name},{user},"{group}"')
            pki.kubeconfig(user).write_text(pki._kubeconfig(f"{user}-token"))
        pki.tokens.write_text("\n".join(lines) + "\n")
        return pki

    def _write(self, name: str, issued: trustme.LeafCert) -> None:
        issued.private_key_pem.write_to_path(self.key(name))
        issued.cert_chain_pems[0].write_to_path(self.certificate(name))

    def _kubeconfig(self, token: str) -> str:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "e2e",
                "clusters": [
                    {"name": "e2e", "cluster": {"server": self.server, "certificate-authority-data": authority}}
                ],
                "users": [{"name": "e2e", "user": {"token": token}}],
                "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            }
        )
