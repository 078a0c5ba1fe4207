"""What the measured operator runs on: a control plane of its own, nodes and engines that are not there."""

import asyncio
import json
import math
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from paternoster_contract.labels import ADMIN_PORT, DEFAULT_ENGINE_IMAGE
from paternoster_e2e.artifacts.components import ensure_programs
from paternoster_e2e.cluster.cluster import ROOT, Cluster, running_cluster
from paternoster_e2e.cluster.processes import Service, tail
from paternoster_e2e.kubectl import Kubectl, until
from performance import foreign
from performance.api import Api
from performance.fake_nodes import PODS_PER_NODE
from performance.fleets import namespaces

SUBNET = "10.64"
"""Addresses of the pods: 10.64.0.0/16, all of them this machine's."""
SPARE = 1.2
"""Room for pods that come before others go, in pods."""
OPERATOR = ("paternoster-system", "operator")
"""Namespace and name of the operator's service account."""
USER = "system:serviceaccount:{}:{}".format(*OPERATOR)
FLAGS = {
    # What is measured is the operator, so nothing else of the cluster may hold it up.
    "kube-apiserver": [
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        "--enable-priority-and-fairness=false",
        # In one file, which is counted afterwards.
        "--audit-log-maxsize=8192",
    ],
    "kube-controller-manager": [
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
        # Those that make pods and let them run; no program here reads what the others write.
        "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,node-lifecycle-controller",
    ],
    "kube-scheduler": ["--kube-api-qps=1000", "--kube-api-burst=2000"],
}


@dataclass(frozen=True)
class Stage:
    """Everything runs; no fleet is there yet."""

    cluster: Cluster
    operator: Service
    url: str
    """URL of the operator's HTTP."""
    engines_url: str
    services: list[Service]
    """All that must run until the end."""

    def check_services(self) -> None:
        """Raise :class:`StartError` where one has ended."""
        for service in self.services:
            service.check_alive()

    def describe_services(self) -> str:
        """The end of each log, and the room on the disk that has them."""
        free = shutil.disk_usage(self.cluster.folder).free / 2**30
        ends = [f"--- {service.name}\n{tail(service.log_file)}" for service in self.services]
        return "\n".join([*ends, f"--- {free:.1f} GiB free below {self.cluster.folder}"])

    @property
    def audit_log(self) -> Path:
        return self.cluster.plane.audit_log


@contextmanager
def set_up(fleets: int, pods: int, operator: str, foreign_pods: int = 0, port: int = 18080) -> Iterator[Stage]:
    """``operator`` is the command line that ``operator -A ...`` is added to. All ends with the context."""
    with running_cluster(ensure_programs(), extra=FLAGS) as cluster, ExitStack() as stack:
        subprocess.run(["ip", "route", "add", "local", f"{SUBNET}.0.0/16", "dev", "lo"], check=True)
        kubectl = Kubectl(cluster.environment)
        kubectl("create", "--filename", str(ROOT / "crds"))
        kubectl("wait", "--for=condition=Established", "crd/llmdeployments.paternoster.dev")
        kubectl(
            "create",
            "--filename=-",
            document=_namespaces([*namespaces(fleets), *foreign.namespaces(foreign_pods), OPERATOR[0]]),
        )
        kubeconfig = _service_account(cluster, kubectl)
        logs, services = cluster.folder / "logs", cluster.services()
        nodes = math.ceil(SPARE * fleets * pods / PODS_PER_NODE)
        fakes = [
            ("fake_nodes", [f"--kubeconfig={cluster.kubeconfig}", f"--nodes={nodes}", f"--subnet={SUBNET}"]),
            ("fake_engines", []),
        ]
        for name, flags in fakes:
            command = [sys.executable, "-P", "-m", f"performance.{name}", *flags]
            fake = Service(name, command, logs / f"{name}.log")
            _run(stack, fake)
            services.append(fake)
            fake.until(partial(_has_spoken, fake))
        until(lambda: _ready_nodes(kubectl) == nodes, f"{nodes} nodes that take pods")
        if foreign_pods:
            asyncio.run(_create_foreign_pods(cluster, foreign_pods))
        words = ["operator", "-A", f"--port={port}", "--leader-elect", f"--lease-namespace={OPERATOR[0]}"]
        service = Service(
            "operator",
            [*shlex.split(operator), *words, f"--engine-image={DEFAULT_ENGINE_IMAGE}"],
            logs / "operator.log",
            {"KUBECONFIG": str(kubeconfig)},
        )
        _run(stack, service)
        services.append(service)
        url = f"http://127.0.0.1:{port}"
        service.until(lambda: _leads(url))
        yield Stage(cluster, service, url, f"http://127.0.0.1:{ADMIN_PORT}", services)


def _namespaces(names: list[str]) -> dict[str, Any]:
    items = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
    return {"apiVersion": "v1", "kind": "List", "items": items}


async def _create_foreign_pods(cluster: Cluster, count: int) -> None:
    async with Api(cluster.kubeconfig) as api:
        await foreign.create(api, count)


def read(url: str) -> str:
    """A small document over HTTP."""
    with urllib.request.urlopen(url, timeout=60) as response:  # the machine may be shared
        text: str = response.read().decode()
    return text


def parse_metrics(text: str) -> dict[str, float]:
    """The values of a Prometheus exposition, by series."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def metric(text: str, series: str) -> float:
    """One value of a Prometheus exposition."""
    return parse_metrics(text)[series]


def _run(stack: ExitStack, service: Service) -> None:
    service.start()
    stack.callback(service.stop)


def _has_spoken(service: Service) -> bool:
    return service.log_file.stat().st_size > 0


def _service_account(cluster: Cluster, kubectl: Kubectl) -> Path:
    """A kubeconfig of the operator's own: the audit log names who asked."""
    namespace, name = OPERATOR
    kubectl("create", "serviceaccount", name, f"--namespace={namespace}")
    kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--serviceaccount={namespace}:{name}")
    token = kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h").strip()
    document = json.loads(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    file = cluster.folder / "operator.kubeconfig"
    file.write_text(json.dumps(document))
    return file


def _ready_nodes(kubectl: Kubectl) -> int:
    """Nodes whose only taint is their own; a new one is tainted until the node controller has seen it."""
    items = json.loads(kubectl("get", "nodes", "--output=json"))["items"]
    return sum(len(item["spec"].get("taints", [])) == 1 for item in items)


def _leads(url: str) -> bool:
    try:
        return metric(read(url + "/metrics"), "paternoster_operator_leading") == 1
    except (OSError, KeyError):
        return False
