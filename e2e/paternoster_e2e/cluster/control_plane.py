"""etcd, API server, controller manager and scheduler."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from paternoster_e2e.cluster.network import API_PORT, API_SERVICE_ADDRESS, NODE_ADDRESS, SERVICE_RANGE
from paternoster_e2e.cluster.pki import Pki
from paternoster_e2e.cluster.processes import Service

ETCD = "http://127.0.0.1:2379"
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
"""
"""What service accounts asked for, so that a test can count it."""
ENVIRONMENT = {"GOGC": "300"}
"""Collects garbage a third as often: what is short here is processor time, not memory."""


class ControlPlane:
    """Four services below ``folder``, with the programs of ``bin``.

    ``extra`` gives more flags to a program, by its name; of a flag given twice the last counts.
    """

    def __init__(self, bin_folder: Path, folder: Path, extra: Mapping[str, Sequence[str]] | None = None) -> None:
        self._bin = bin_folder
        self._extra = extra or {}
        self._logs = folder / "logs"
        self.audit_log = self._logs / "audit.jsonl"
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = ["127.0.0.1", NODE_ADDRESS, API_SERVICE_ADDRESS]
        self.pki = Pki.create(folder / "pki", f"https://{NODE_ADDRESS}:{API_PORT}", [*names, *addresses])
        policy = folder / "audit-policy.yaml"
        policy.write_text(AUDIT_POLICY)
        self.etcd = self._service(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            # The data is scratch, and a shared disk's fsync would be most of the time.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        pki = self.pki
        self.api_server = self._service(
            "kube-apiserver",
            f"--etcd-servers={ETCD}",
            f"--advertise-address={NODE_ADDRESS}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--client-ca-file={pki.ca}",
            f"--token-auth-file={pki.tokens}",
            "--authorization-mode=Node,RBAC",
            # OwnerReferencesPermissionEnforcement is on in some distributions, and asks for one more permission.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki.key('service-account')}",
            f"--service-account-signing-key-file={pki.key('service-account')}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--kubelet-client-certificate={pki.certificate('kubelet-client')}",
            f"--kubelet-client-key={pki.key('kubelet-client')}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--shutdown-delay-duration=0s",
            "--v=1",
        )
        self.controller_manager = self._service(
            "kube-controller-manager",
            *self._as("controller-manager"),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki.key('service-account')}",
            f"--root-ca-file={pki.ca}",
            f"--cluster-signing-cert-file={pki.ca}",
            f"--cluster-signing-key-file={pki.key('ca')}",
            "--leader-elect=false",
            # Nodes that a script keeps up send no heartbeats.
            "--node-monitor-grace-period=24h",
            "--horizontal-pod-autoscaler-sync-period=2s",
            # A namespace with many objects is gone sooner.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--v=1",
        )
        self.scheduler = self._service("kube-scheduler", *self._as("scheduler"), "--leader-elect=false", "--v=1")

    def start(self) -> None:
        """Returns when the API server answers and a namespace gets its service account."""
        self.etcd.start()
        self.api_server.start()
        self.api_server.until(self.ready)
        self.controller_manager.start()
        self.scheduler.start()
        self.controller_manager.until(lambda: self._succeeds("get", "serviceaccount", "default", "--namespace=default"))

    def ready(self) -> bool:
        """Whether the API server says so."""
        return self._succeeds("get", "--raw=/readyz")

    def stop(self) -> None:
        for service in (self.scheduler, self.controller_manager, self.api_server, self.etcd):
            service.stop()

    def _service(self, program: str, *flags: str) -> Service:
        self._logs.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [self._bin / program, *flags, *self._extra.get(program, ())]
        return Service(program, command, self._logs / f"{program}.log", ENVIRONMENT)

    def _as(self, user: str) -> list[str]:
        config = self.pki.kubeconfig(user)
        return [
            f"--{flag}={config}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]

    def _succeeds(self, *words: str) -> bool:
        command = [str(self._bin / "kubectl"), f"--kubeconfig={self.pki.kubeconfig('admin')}", *words]
        return subprocess.run(command, capture_output=True).returncode == 0
