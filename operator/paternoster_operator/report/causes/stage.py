"""The stage of a pod that starts without a known obstacle. Pure."""

from dataclasses import dataclass

from paternoster_contract.labels import ENGINE_CONTAINER
from paternoster_operator.pods.view import PREPARING, PodView
from paternoster_operator.report.causes.ended import describe_end
from paternoster_operator.report.causes.kubelet_events import find_pull


@dataclass(frozen=True, slots=True)
class Stage:
    """What the pod waits for now."""

    reason: str
    message: str


def find_stage(pod: PodView) -> Stage:
    """Return the stage, from scheduling to the engine's start."""
    if pod.waiting_reason == "SchedulingGated":
        return Stage("SchedulingGated", f"waits until its scheduling gates are removed: {', '.join(pod.gates)}")
    if pod.phase == "Pending" and pod.created is not None and not pod.scheduled:
        return Stage("Scheduling", "waits for a node")
    if pod.waiting_reason in PREPARING or (pod.scheduled and pod.is_preparing):
        return _preparing_stage(pod)
    if pod.readiness_gate:
        return Stage("ReadinessGated", f"its containers are ready, the pod is not: {pod.readiness_gate}")
    if pod.container != ENGINE_CONTAINER:
        since = f" since {pod.running_since}" if pod.running_since else ""
        return Stage("Initializing", f"waits for container {pod.container}, which runs{since}")
    if pod.recovers:
        return Stage("EngineRestarted", f"{describe_end(pod)}; it starts again")
    if pod.engine_fault is not None:
        return Stage(pod.engine_fault.reason, pod.engine_fault.message)
    return Stage("ModelLoading", "the engine loads its model")


def _preparing_stage(pod: PodView) -> Stage:
    node = f" on node {pod.node}" if pod.node else ""
    if (pull := find_pull(pod)) is not None:
        return Stage("ImagePulling", f"{pull.note} since {pull.last}{node}")
    if pod.events and pod.events[-1].reason == "Started":
        hook = f"container {pod.events[-1].container} has started and its postStart hook has not ended"
        return Stage("Initializing", f"{hook} since {pod.events[-1].last}")
    return Stage("ContainerCreating", f"its volumes, network and images are prepared{node}")
