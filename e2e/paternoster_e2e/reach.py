"""Who reaches whom on a cluster: pods that listen and dial, for what NetworkPolicies allow and refuse."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paternoster_e2e.artifacts.images import version
from paternoster_e2e.kubectl import Document, Kubectl, until

PORTS = {"http": 8000, "admin": 8001}
"""Ports of a server that means to be reached at one of them only by some."""
LISTEN = """
import sys, threading
from http.server import HTTPServer, SimpleHTTPRequestHandler
for port in sys.argv[1:]:
    threading.Thread(target=HTTPServer(("", int(port)), SimpleHTTPRequestHandler).serve_forever).start()
"""
DIAL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
except socket.gaierror:
    raise
except OSError as error:
    print(error)
else:
    print("reached")
"""


class ReachPod:
    """A cheap pod that answers HTTP on ``ports`` (a container port's name -> its number) and dials others."""

    def __init__(
        self,
        kubectl: Kubectl,
        namespace: str,
        name: str,
        labels: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.kubectl = kubectl
        self.namespace = namespace
        self.name = name
        self._labels = dict(labels or {})
        self._ports = dict(ports or {"http": 8000})

    def apply(self) -> None:
        """Make it; :meth:`ready` waits, so that several start at once."""
        self.kubectl.apply(self._document())

    def ready(self) -> None:
        """Wait until kubelet has had an answer from it."""
        self.kubectl("wait", "--for=condition=Ready", f"pod/{self.name}", *self._here, "--timeout=120s", timeout=130)

    @property
    def address(self) -> str:
        return str(self.kubectl.get("pod", self.name, self.namespace)["status"]["podIP"])

    def reaches(self, host: str, port: int) -> bool:
        """Whether a connection to ``host`` comes about within 2 s. An unknown name raises ``CommandError``."""
        words = ["python3", "-c", DIAL, host, str(port)]
        return self.kubectl("exec", self.name, *self._here, "--", *words).strip() == "reached"

    def logs(self) -> str:
        """A line for each request that it answered."""
        return self.kubectl("logs", self.name, *self._here)

    @property
    def _here(self) -> list[str]:
        return [f"--namespace={self.namespace}"]

    def _document(self) -> Document:
        ports = [{"name": name, "containerPort": number} for name, number in self._ports.items()]
        container = {
            "name": "reach",
            # Any image with Python will do; this one is on every cluster that the project is installed on.
            "image": f"paternoster-gateway:{version()}",
            "command": ["python3", "-uc", LISTEN, *(str(number) for number in self._ports.values())],
            "ports": ports,
            "readinessProbe": {"httpGet": {"path": "/", "port": ports[0]["name"]}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        spec = {
            "containers": [container],
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 0,
        }
        metadata = {"name": self.name, "namespace": self.namespace, "labels": self._labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass
class Stage:
    """A server with :data:`PORTS`, two who dial it, and policies between them."""

    kubectl: Kubectl
    server: ReachPod
    friend: ReachPod
    stranger: ReachPod
    service: str
    """The server's, as a pod of any namespace resolves it."""
    address: str
    """The server's own."""

    def policy(self, name: str, namespace: str, **spec: Any) -> None:
        """A NetworkPolicy for every pod of the namespace, unless ``spec`` says for which."""
        metadata = {"name": name, "namespace": namespace}
        document: Document = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
        self.kubectl.apply({**document, "spec": {"podSelector": {}, **spec}})

    def reached(self, client: ReachPod, *ports: int, host: str = "") -> None:
        """Wait until ``client`` reaches each of the server's ``ports``."""
        for port in ports:
            where = f"{client.name} reaches {host or 'the server'}:{port}"
            until(lambda port=port: client.reaches(host or self.address, port), where, 30)  # type: ignore[misc]

    def refused(self, client: ReachPod, *ports: int, host: str = "") -> None:
        """Wait until it reaches none of them."""
        for port in ports:
            where = f"{client.name} does not reach {host or 'the server'}:{port}"
            until(lambda port=port: not client.reaches(host or self.address, port), where, 30)  # type: ignore[misc]
