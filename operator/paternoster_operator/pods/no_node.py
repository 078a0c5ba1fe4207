"""Why no node takes a pod: the scheduler's message, read. Pure.

Its form in Kubernetes 1.33 to 1.35 is ``0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.``:
how many nodes each reason holds for; then what preemption could do. A node counts once for each resource that it lacks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CLAIMS_FREED = "no new claims to deallocate|still not schedulable|de(?:allocation|letion) of ResourceClaim completed"
_MESSAGE = re.compile(
    rf"0/(\d+) nodes are available: (.+?)\.(?: (?:{_CLAIMS_FREED}))?(?:,? preemption: .+)?", re.DOTALL
)
"""What taking claims or nodes from others would do is left out; another end would be part of the reasons."""
_CAUSE = re.compile(r"(\d+) (.+)", re.DOTALL)
_BETWEEN = re.compile(r", (?=\d+ )")
INSUFFICIENT = "Insufficient "
CORDONED = "node(s) were unschedulable"
_CLAIM = re.compile(
    r"cannot allocate all claims|timed out trying to allocate devices|resourceclaim (not available on the node|in use)"
    r"|resource claim \S+ is in the process of being allocated|request \S+: device class \S+ does not exist"
    r"|cannot schedule extended resource claim|cannot fit resource"
)
"""Messages of the plugin for resource claims where it finds no device."""
_FOR_IT = re.compile(rf"{INSUFFICIENT}.+|Too many pods|{re.escape(CORDONED)}|{_CLAIM.pattern}")
"""The scheduler's messages of nodes that are for such pods and have no room for this one now."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why some nodes do not take the pod, in the scheduler's words."""

    nodes: int
    text: str


@dataclass(frozen=True, slots=True)
class NoNode:
    """All of them."""

    nodes: int
    """How many the cluster has."""
    causes: tuple[Cause, ...]

    def lacks_devices(self, resource: str) -> bool:
        """Whether every node that is for such pods lacks ``resource``, or devices for the pod's claims.

        Nodes whose labels or taints keep the pod away do not count. A cordoned one does, for it may have them.
        """
        devices = sum(cause.nodes for cause in self.causes if _is_device(cause.text, resource))
        barred = sum(cause.nodes for cause in self.causes if not _FOR_IT.fullmatch(cause.text))
        return 0 < devices >= self.nodes - barred

    def describe(self, requests: Mapping[str, str]) -> str:
        """In plain words, where the scheduler's are not; ``requests`` is what the pod asks for."""
        return "; ".join(
            f"{_write_plainly(cause.text, requests)} ({cause.nodes} of {self.nodes} nodes)"
            for cause in sorted(self.causes, key=lambda cause: -cause.nodes)
        )


def read_no_node(message: str) -> NoNode | None:
    """None where the message has another form: it is to be passed on as it is."""
    whole = _MESSAGE.fullmatch(message)
    if whole is None:
        return None
    nodes, reasons = int(whole[1]), whole[2]
    if _CLAIM.fullmatch(reasons):
        # The message is of the pod, before any node was filtered.
        return NoNode(nodes, (Cause(nodes, reasons),))
    causes = [_CAUSE.fullmatch(part) for part in _BETWEEN.split(reasons)]
    if any(cause is None for cause in causes):
        return None
    return NoNode(nodes, tuple(Cause(int(cause[1]), cause[2]) for cause in causes if cause is not None))


def is_claim(text: str) -> bool:
    """Whether ``text`` is a message about missing devices of a resource claim."""
    return _CLAIM.fullmatch(text) is not None


def _is_device(text: str, resource: str) -> bool:
    return text == INSUFFICIENT + resource or is_claim(text)


def _write_plainly(text: str, requests: Mapping[str, str]) -> str:
    if text == CORDONED:
        return "cordoned"
    if not text.startswith(INSUFFICIENT):
        return text
    name = text.removeprefix(INSUFFICIENT)
    return f"not enough {name} for its {requests[name]}" if name in requests else f"not enough {name}"
