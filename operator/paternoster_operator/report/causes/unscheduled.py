"""Find why a pod has no node: scheduling gates, claims of volumes and devices, the scheduler's message. Pure."""

import re

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.pods.no_node import read_no_node
from paternoster_operator.pods.view import UNBOUND, PodView
from paternoster_operator.report.causes.cause import StallReason, explain_stall

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
"""The scheduler's message about a pod whose claim does not exist."""
CLAIM_SECONDS = 10.0
"""Time for a resource claim to be created from its template, and for a controller to remove a scheduling gate."""


def find_unscheduled(pod: PodView, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """Return why the pod has no node; None where it has one, or only waits for the scheduler. ``now``: RFC 3339."""
    late = pod.age_at(now) > CLAIM_SECONDS
    if pod.waiting_reason == "SchedulingGated":
        gates = ", ".join(pod.gates) or "unnamed"
        text = f"podTemplate.spec.schedulingGates: {gates}: no controller has removed it from the pod; remove it there"
        return StallReason("SchedulingGated", text) if late else None
    if pod.missing_claim and late:
        text = f"no resource claim could be made from the template {pod.missing_claim}: is it there?"
        return StallReason("InsufficientGPUs", text)
    if pod.waiting_reason != "Unschedulable":
        return None
    if (claim := _NO_CLAIM.search(pod.message)) is not None:
        return StallReason("VolumeClaimNotFound", f"there is no PersistentVolumeClaim {claim[1]} in its namespace")
    if pod.waits_for_volume:
        return _explain_unbound(pod)
    no_node = read_no_node(pod.message)
    if no_node is None:
        return explain_stall("Unschedulable", pod.message)
    reason = "InsufficientGPUs" if no_node.lacks_devices(spec.resources.gpu.resource_name) else "Unschedulable"
    return explain_stall(reason, f"no node takes it: {no_node.describe(pod.requests)}")


def _explain_unbound(pod: PodView) -> StallReason:
    claims = ", ".join(pod.volume_claims)
    why = "; ".join(dict.fromkeys(event.note for event in pod.events[-2:]))
    return explain_stall("VolumeClaimUnbound", f"pod has {UNBOUND} ({claims})" + (f": {why}" if why else ""))
