"""Two namespaces: a server with two ports at home, and abroad a friend and a stranger who dial it."""

from collections.abc import Iterator

import pytest

from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.objects import scratch_namespace
from paternoster_e2e.reach import PORTS, ReachPod, Stage


@pytest.fixture(scope="module")
def pods(kubectl: Kubectl) -> Iterator[Stage]:
    with scratch_namespace(kubectl, "home") as home, scratch_namespace(kubectl, "abroad") as abroad:
        server = ReachPod(kubectl, home, "server", {"app": "server"}, PORTS)
        friend = ReachPod(kubectl, abroad, "friend", {"app": "friend"})
        stranger = ReachPod(kubectl, abroad, "stranger", {"app": "stranger"})
        ports = [{"name": name, "port": number, "targetPort": name} for name, number in PORTS.items()]
        kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "server", "namespace": home},
                "spec": {"selector": {"app": "server"}, "ports": ports},
            }
        )
        for pod in (server, friend, stranger):
            pod.apply()
        for pod in (server, friend, stranger):
            pod.ready()
        yield Stage(kubectl, server, friend, stranger, f"server.{home}", server.address)


@pytest.fixture
def stage(pods: Stage) -> Iterator[Stage]:
    """Without any policy, every pod reaches the server: what a test sees refused was refused by its policies."""
    for client in (pods.friend, pods.stranger):
        pods.reached(client, *PORTS.values())
        pods.reached(client, PORTS["http"], host=pods.service)
    yield pods
    for namespace in (pods.server.namespace, pods.friend.namespace):
        pods.kubectl("delete", "networkpolicies", "--all", f"--namespace={namespace}")
