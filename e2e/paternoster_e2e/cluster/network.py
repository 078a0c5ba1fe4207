"""The network of the cluster: a namespace of its own, so that nothing of it meets the machine's."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Name of a node, its address, and those that its pods get."""

    name: str
    address: str
    pods: str
    restart_seconds: int | None = None
    """Most seconds until a container that ended again and again is restarted; the kubelet's five minutes if None."""


NODE_ADDRESS = "10.200.0.1"
POD_RANGE = "10.88.0.0/16"
"""Addresses of all pods."""
FIRST = Place("node", NODE_ADDRESS, "10.88.0.0/17")
SECOND = Place("node-2", "10.200.0.2", "10.88.128.0/17", restart_seconds=1)
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
API_PORT = 6443
POD_NAMESPACES = Path("/run/netns")

ISOLATE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGTERM", "--mount-proc")
"""Runs a command in new namespaces. When it ends the kernel ends every process, mount and link made inside."""
ISOLATED_VARIABLE = "PATERNOSTER_E2E_ISOLATED"
"""Environment variable of processes that were started with :data:`ISOLATE`."""


def isolated() -> bool:
    """Whether this process may lay out a network of its own."""
    return os.environ.get(ISOLATED_VARIABLE) == "1"


def lay_out() -> None:
    """Give each node an address that pods reach, on a bridge without ports."""
    if not isolated():
        raise RuntimeError("the cluster's network is laid out in namespaces of its own: start it by paternoster-e2e")
    for words in (
        "link set lo up",
        "link add node0 type bridge",
        f"address add {FIRST.address}/24 dev node0",
        f"address add {SECOND.address}/24 dev node0",
        "link set node0 up",
        f"route add default via {NODE_ADDRESS}",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # containerd names the namespaces of pods by files here: on the machine's disk they would outlive the cluster.
    POD_NAMESPACES.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "netns", POD_NAMESPACES], check=True)
