"""Pods that are deleted while they start: each ends in seconds, and none becomes ready once it has SIGTERM.

The first process of a container has no default action: a SIGTERM that comes before there is a handler is lost, and the
kubelet waits for the whole grace period, which is minutes, before it kills.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.release import RELEASE, SYSTEM

pytestmark = pytest.mark.timeout(900)

GONE_WITHIN = 45.0
"""Seconds from the deletion of a pod. An engine's last 2 s of listening are in it, and a gateway's 10 s."""
SIGTERM_AFTER = 3.0
"""Seconds from the deletion of a pod: the second that its preStop hook sleeps, and what the kubelet is late. A pod that
was about to become ready may do so in it."""
AFTER_START = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 3.0, 4.0)
"""Seconds from the first sight of a running container."""


def ready(pod: Document) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def state(pod: Document, name: str) -> Document:
    """The container's state of that name: ``waiting``, ``running`` or ``terminated``; empty while it has another."""
    statuses = pod["status"].get("containerStatuses", [])
    return next((status["state"][name] for status in statuses if name in status["state"]), {})


def created(_: Document) -> bool:
    return True


def scheduled(pod: Document) -> bool:
    return "nodeName" in pod["spec"]


def creating(pod: Document) -> bool:
    return bool(state(pod, "waiting").get("reason") == "ContainerCreating" or running(pod))


def running(pod: Document) -> bool:
    return bool(state(pod, "running"))


class Pods:
    """The pods of one Deployment, which makes a new one for each that is deleted."""

    def __init__(self, kubectl: Kubectl, namespace: str, selector: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._selector = selector
        self._deleted: set[str] = set()

    def delete_when(self, phase: Callable[[Document], bool], seconds: float = 0) -> None:
        """Delete the newest pod ``seconds`` after it is first seen to be in ``phase``, and watch it go."""
        pod = until(lambda: self._next(phase), f"a pod is {phase.__name__}", 180, every=0.05)
        time.sleep(seconds)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self._deleted.add(uid)
        self._kubectl("delete", "pod", name, f"--namespace={self._namespace}", "--wait=false")
        moment = f"{name}, deleted {seconds:g} s after it was {phase.__name__},"
        began, was_ready = time.monotonic(), False
        while (now := self._find(uid)) is not None:
            took = time.monotonic() - began
            was_ready = was_ready or (took < SIGTERM_AFTER and ready(now))
            assert was_ready or not ready(now), f"{moment} became ready after {took:.1f} s"
            assert took < GONE_WITHIN, f"{moment} is there after {GONE_WITHIN:g} s"
            time.sleep(0.2)
        print(f"{moment} was gone after {time.monotonic() - began:.1f} s")

    def _next(self, phase: Callable[[Document], bool]) -> Document | None:
        left = [pod for pod in self._list() if pod["metadata"]["uid"] not in self._deleted]
        newest = max(left, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
        return newest if newest is not None and phase(newest) else None

    def _find(self, uid: str) -> Document | None:
        return next((pod for pod in self._list() if pod["metadata"]["uid"] == uid), None)

    def _list(self) -> list[Document]:
        return self._kubectl.list("pods", self._namespace, self._selector)


def test_engines_deleted_at_every_phase_of_their_start(fleet: Any) -> None:
    fleet.apply()
    pods = Pods(fleet.kubectl, fleet.namespace, f"app.kubernetes.io/instance={fleet.name}")
    for phase in (created, scheduled, creating):
        pods.delete_when(phase)
    for seconds in AFTER_START:
        pods.delete_when(running, seconds)
    pods.delete_when(ready)
    fleet.until_ready()


@pytest.mark.parametrize("component", ["gateway", "operator"])
def test_the_installation_s_own_pods(kubectl: Kubectl, gateway: str, component: str) -> None:
    """Nothing precedes SIGTERM here: it comes with the deletion."""
    pods = Pods(kubectl, SYSTEM, f"app.kubernetes.io/component={component}")
    pods.delete_when(ready)
    for phase in (created, creating):
        pods.delete_when(phase)
    for seconds in AFTER_START[:5]:
        pods.delete_when(running, seconds)
    deployment = f"deployment/{RELEASE}-{component}"
    kubectl("rollout", "status", deployment, f"--namespace={SYSTEM}", "--timeout=120s", timeout=150)
