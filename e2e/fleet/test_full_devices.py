"""Rollouts where every device is taken: the replica that is to be replaced holds what the new one waits for.

The devices are an extended resource that the test announces on the node, as its kubelet would with a device plugin.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paternoster_e2e.kubectl import Document, condition, until

pytestmark = pytest.mark.timeout(600)

DEVICE = "example.com/lift"
SHORT = {"timeoutSeconds": 5}


@pytest.fixture(autouse=True)
def one_device(fleet: Any) -> Iterator[None]:
    """The node has one."""
    announce(fleet, "1")
    yield
    announce(fleet, None)


def announce(fleet: Any, amount: str | None) -> None:
    [node] = fleet.kubectl.list("nodes")
    patch = json.dumps({"status": {"capacity": {DEVICE: amount}, "allocatable": {DEVICE: amount}}})
    fleet.kubectl("patch", "node", node["metadata"]["name"], "--subresource=status", "--type=merge", f"--patch={patch}")


def needing(devices: int = 1) -> Document:
    return {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", DEVICE: str(devices)}}


def names(fleet: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in fleet.pods()}


def events(fleet: Any, reason: str) -> list[str]:
    found = fleet.kubectl.list("events", fleet.namespace)
    return [event["message"] for event in found if event["reason"] == reason]


@contextmanager
def chats_throughout(fleet: Any) -> Iterator[list[int]]:
    """One request after the other while the block runs; their statuses."""
    statuses: list[int] = []
    stopped = threading.Event()

    def send_chats() -> None:
        while not stopped.is_set():
            statuses.append(fleet.chat().status_code)

    thread = threading.Thread(target=send_chats)
    thread.start()
    try:
        yield statuses
    finally:
        stopped.set()
        thread.join()


def test_the_old_replica_ends_first_and_requests_are_held(fleet: Any) -> None:
    fleet.apply(resources=needing(), drain=SHORT)
    fleet.until_ready()
    before = names(fleet)
    assert fleet.child("deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1
    with chats_throughout(fleet) as statuses:
        fleet.apply(resources=needing(), drain=SHORT, engine={"maxQueuedRequests": 8})
        until(lambda: not names(fleet) & before, "the old replica is gone", 120)
        fleet.until_ready()
    assert set(statuses) == {200}, "held while no replica serves"
    [message] = events(fleet, "RolloutWithoutSurge")
    assert f"needs {DEVICE}, which {next(iter(before))} holds" in message
    until(
        lambda: fleet.child("deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1,
        "the next rollout begins with a surge again",
        30,
    )


def test_a_surge_that_the_manifest_asks_for_stays(fleet: Any) -> None:
    fleet.apply(resources=needing(), drain=SHORT, rollout={"maxSurge": 1})
    fleet.until_ready()
    before = names(fleet)
    fleet.apply(resources=needing(), drain=SHORT, rollout={"maxSurge": 1}, engine={"maxQueuedRequests": 8})
    message = fleet.until_stalled("Unschedulable", ready="True")
    assert f"{next(iter(before))} holds {DEVICE}: with rollout.maxSurge: 0 it would end first" in message
    assert fleet.chat().status_code == 200
    fleet.apply(resources=needing(), drain=SHORT, rollout={"maxSurge": 0}, engine={"maxQueuedRequests": 8})
    until(lambda: not names(fleet) & before, "the old replica is gone", 120)
    fleet.until_ready()


def test_an_edit_that_no_node_has_room_for_costs_nothing(fleet: Any) -> None:
    """The end of the old replica would not help, so it goes on."""
    fleet.apply(resources=needing(), drain=SHORT)
    fleet.until_ready()
    before = names(fleet)
    fleet.apply(resources=needing(2), drain=SHORT)
    fleet.until_stalled("Unschedulable", ready="True")
    assert fleet.chat().status_code == 200
    assert before <= names(fleet)
    fleet.apply(resources=needing(), drain=SHORT)
    fleet.until_ready()
    assert names(fleet) == before


def test_the_budget_counts_the_surge(fleet: Any) -> None:
    """Engines on GPUs do not serve here; the Deployment says what a rollout may do."""
    gpus = {"gpu": {"count": 1, "resourceName": DEVICE}}
    fleet.apply(resources=gpus, budget={"maxGPUs": 1})
    rolling = until(lambda: fleet.child("deployment")["spec"]["strategy"]["rollingUpdate"], "the Deployment", 60)
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (0, 1)
    fleet.apply(resources=gpus, budget={"maxGPUs": 2})
    until(
        lambda: fleet.child("deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1,
        "the budget pays for one more while a rollout goes on",
        30,
    )
    assert condition(fleet.get(), "Ready")["status"] != "True"
