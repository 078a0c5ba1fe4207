"""The operator as a process of this machine, with the rights of a service account of the cluster."""

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paternoster_e2e.cluster.processes import Service
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.permissions import ChartPermissions, grant

PROGRAM = Path(sys.executable).with_name("paternoster")


class LocalOperator:
    """Logs to, and has its kubeconfig in ``folder``."""

    def __init__(
        self, kubectl: Kubectl, account: tuple[str, str], folder: Path, *words: str, server: str | None = None
    ) -> None:
        """``account`` is the service account's namespace and name; ``words`` go to ``paternoster operator``.

        ``server`` is the URL of what stands before the API server, where anything does.
        """
        self.port = free_port()
        self._log = folder / "operator.log"
        config = folder / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(kubectl, *account, server)))
        command: list[str | Path] = [PROGRAM, "operator", *words, "--host=127.0.0.1", f"--port={self.port}"]
        self._service = Service("operator", command, self._log, {"KUBECONFIG": str(config)})

    @property
    def log(self) -> str:
        """Everything it has logged so far."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return text.replace("\\", "")  # quotation marks within JSON within JSON

    @property
    def refusals(self) -> list[str]:
        """What it was not allowed to do, in its log's lines."""
        return [line for line in self.log.splitlines() if "forbidden" in line.lower()]

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()

    @property
    def alive(self) -> bool:
        return self._service.alive

    def models(self) -> set[str] | None:
        """Names in its routing table; None while it has none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/routes", timeout=10) as answer:
                return set(json.load(answer)["models"])
        except (urllib.error.HTTPError, OSError):
            return None


@contextmanager
def running(operator: LocalOperator) -> Iterator[LocalOperator]:
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()


def kubeconfig(kubectl: Kubectl, namespace: str, account: str, server: str | None = None) -> dict[str, object]:
    """For the cluster of ``kubectl``, or for ``server``, with a token of the service account."""
    own = json.loads(kubectl("config", "view", "--minify", "--flatten", "--raw", "--output=json"))
    cluster = own["clusters"][0]["cluster"] if server is None else {"server": server}
    token = kubectl("create", "token", account, f"--namespace={namespace}", "--duration=1h").strip()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def namespaced_operator(
    kubectl: Kubectl, permissions: ChartPermissions, namespace: str, folder: Path
) -> Iterator[LocalOperator]:
    """One of ``namespace``, with its lease and these permissions there, while the block runs."""
    account = (namespace, "operator")
    grant(kubectl, account, [*permissions.operator, *permissions.lease], namespace)
    scope = f"--namespace={namespace}"
    with running(LocalOperator(kubectl, account, folder, scope, *chart_flags(namespace, permissions))) as operator:
        yield operator


def chart_flags(namespace: str, permissions: ChartPermissions) -> list[str]:
    """Leader election, keys and policies as the chart asks for them, in ``namespace``."""
    lease = ["--leader-elect", f"--lease-namespace={namespace}", f"--lease-name={permissions.lease_name}"]
    policies = [f"--network-policies={namespace}", "--operator-labels=app=operator"]
    return [*lease, *policies, f"--admin-key-secret={namespace}/admin-key"]
