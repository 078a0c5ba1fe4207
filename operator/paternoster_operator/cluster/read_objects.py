"""Read Deployment and pods of a fleet: its own, or those that ``spec.targetRef`` names; and whether all are known."""

from dataclasses import replace

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.foreign_fields import describe_foreign_fields
from paternoster_operator.cluster.port import Cluster, Key, WatchFailed, WatchFault
from paternoster_operator.observe import Observed
from paternoster_operator.pods.view import EngineAddress

_OTHER_CHILDREN = ("Service", "PodDisruptionBudget", "NetworkPolicy")
"""Those that a watch reports beside the Deployment."""


def check_listed(cluster: Cluster, namespace: str) -> WatchFault | None:
    """Why the cache of ``namespace`` may be out of date; raises :class:`WatchFailed` where it was never whole."""
    fault = cluster.find_watch_fault(namespace)
    if fault is not None and not fault.listed:
        raise WatchFailed(fault.message)
    return fault


async def read_objects(cluster: Cluster, key: Key, resource: LLMDeployment) -> tuple[Observed, tuple[str, str] | None]:
    """What is there, and why the Deployment that is to be observed is not (reason, message).

    Raises :class:`~paternoster_operator.cluster.port.ClusterError` where the cluster cannot be asked.
    """
    own, target = cluster.get_child(key, "Deployment"), resource.spec.target_ref
    if target is None or own is not None:
        fault = "spec.targetRef must be unset while the operator's own Deployment of the fleet is there"
        children = (own, *(cluster.get_child(key, kind) for kind in _OTHER_CHILDREN))
        foreign = tuple(filter(None, (describe_foreign_fields(child) for child in children if child is not None)))
        observed = replace(Observed.from_cluster(own, cluster.list_pods(key)), foreign_fields=foreign)
        return observed, None if target is None else ("OwnPodsRun", fault)
    found = await cluster.read_target(Key(key.namespace, target.name))
    if found is None:
        fault = f"spec.targetRef names Deployment {target.name}, which is not there"
        return Observed(None, (), is_target=True), ("TargetNotFound", fault)
    engine = EngineAddress(resource.spec.engine.runtime.type, target.port)
    return Observed.from_target(found.deployment, found.pods, engine), None
