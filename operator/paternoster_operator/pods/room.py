"""Find what a pod lacks and which other pod of the fleet holds it, as in a rollout on full devices. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paternoster_operator.pods.no_node import CORDONED, INSUFFICIENT, is_claim, read_no_node
from paternoster_operator.pods.placement import Placement
from paternoster_operator.pods.view import PodView

_ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_HELD = {
    "Too many pods": "a place on the node",
    "node(s) didn't have free ports for the requested pod ports": "a port of the node",
    "node(s) exceed max volume count": "a volume of the node",
    "node(s) had no available disk": "a volume",
    _ONE_POD: "a volume that one pod may mount",
    "node(s) didn't match pod anti-affinity rules": "the node, by anti-affinity",
    "node(s) didn't match pod topology spread constraints": "the node, by topologySpreadConstraints",
}
"""The scheduler's reason for a node that a similar pod may have filled -> what that pod holds."""
_NODE_FAULT = "node.kubernetes.io/"
"""Prefix of taints of nodes that accept no pods at all, also none in the place of another."""
_QUOTA = re.compile(r"exceeded quota: \S+, requested: (.+?), used: ")
_IN_USE = re.compile(r"Multi-Attach error.*already (?:used by pod\(s\) (.+)|exclusively attached)")


@dataclass(frozen=True, slots=True)
class Lack:
    """What a pod needs and no node has free."""

    what: str
    """Description for messages, such as nvidia.com/gpu."""
    placement: Placement
    """Placement of the pod that lacks it."""
    resources: tuple[str, ...] = ()
    """The resources with an amount among it."""
    nodes: int | None = None
    """How many nodes lack nothing else; None where the lack is not one of nodes."""
    holders: tuple[str, ...] | None = None
    """Names of the pods that hold it, where they are known."""


def find_lack(pod: PodView) -> Lack | None:
    """Return what ``pod`` lacks, if the end of an equal pod would free all of it; else None."""
    if pod.waiting_reason == "Unschedulable":
        return _lack_of_nodes(pod)
    for event in reversed(pod.events):
        if event.reason == "FailedAttachVolume" and (found := _IN_USE.search(event.note)) is not None:
            names = tuple(re.split(r"[,\s]+", found[1].strip())) if found[1] else ()
            return Lack("a volume", pod.placement, holders=names)
    return None


def _lack_of_nodes(pod: PodView) -> Lack | None:
    no_node = read_no_node(pod.message)
    if no_node is None or any(cause.text == CORDONED or _NODE_FAULT in cause.text for cause in no_node.causes):
        return None
    lacking, resources, nodes = [], [], 0
    for cause in no_node.causes:
        name = cause.text.removeprefix(INSUFFICIENT)
        if name != cause.text:
            resources.append(name)
        elif is_claim(cause.text):
            name = "the devices of its claim"
        elif (name := _HELD.get(cause.text, "")) == "":
            continue
        lacking.append(name)
        nodes = max(nodes, cause.nodes)
    return Lack(" and ".join(lacking), pod.placement, tuple(resources), nodes) if lacking else None


def find_quota_lack(refusal: str, placement: Placement) -> Lack | None:
    """Return what a pod lacks that a quota refused; ``refusal``: the API server's message."""
    found = _QUOTA.search(refusal)
    if found is None:
        return None
    names = [part.partition("=")[0].strip() for part in found[1].split(",")]
    resources = tuple(name.removeprefix("requests.").removeprefix("count/") for name in names)
    return Lack(f"the quota of {' and '.join(names)}", placement, resources)


def find_holder(lack: Lack, others: Iterable[PodView]) -> PodView | None:
    """Return a pod of ``others`` in whose place a pod of that placement certainly fits; None where there is none."""
    holders = [other for other in others if other.holds_devices and _holds_for(lack, other)]
    if lack.nodes is not None and len({other.node for other in holders}) > lack.nodes:
        # They run on more nodes than those for which the scheduler reports only this lack.
        return None
    return holders[0] if holders else None


def _holds_for(lack: Lack, other: PodView) -> bool:
    if lack.holders is not None:
        return other.name in lack.holders
    return lack.placement.fits_in_place_of(other.placement, lack.resources)
