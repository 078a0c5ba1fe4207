"""Choose a rollout's surge by the manifest, the GPU budget and what is schedulable. Pure.

A surge pod avoids an interruption, and needs room beside the replicas. On full devices it would wait for ever for what
the replica holds that it is to replace. So, unless the manifest sets ``maxSurge``:

1. there are at most as many surge pods as ``budget.maxGPUs`` leaves GPUs for;
2. there are none once a new pod waits for something that an old one holds, if a new pod certainly fits in the place of
   the old one: it may run on the same nodes, and requests no more of what is lacking. The rollout then ends one old
   replica at a time until it is complete.

With one replica the gateway holds requests between the end of the old one and the start of the new one.
"""

from dataclasses import dataclass

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.observed import DeploymentView, Observed
from paternoster_operator.pods.room import find_holder, find_lack, find_quota_lack

DEFAULT_SURGE = 1


@dataclass(frozen=True, slots=True)
class Strategy:
    """Fields of the Deployment's rolling update."""

    max_surge: int = DEFAULT_SURGE
    max_unavailable: int = 0
    why: str = ""
    """Why the surge is smaller than the manifest or the default; empty where it is not."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """An old replica whose resources a new one waits for."""

    pod: str
    what: str
    """What it holds, such as nvidia.com/gpu."""


def find_blocking(observed: Observed) -> Blocking | None:
    """Return the old replica that blocks the rollout; None where there is none, or where ending it might not help."""
    deployment, outdated = observed.deployment, observed.outdated
    if deployment is None or not outdated:
        return None
    lacks = [find_lack(pod) for pod in observed.starting if pod not in outdated]
    if deployment.create_failure:
        lacks.append(find_quota_lack(deployment.create_failure, deployment.placement))
    for lack in lacks:
        if lack is not None and (holder := find_holder(lack, outdated)) is not None:
            return Blocking(holder.name, lack.what)
    return None


def choose_strategy(spec: LLMDeploymentSpec, replicas: int, observed: Observed) -> Strategy:
    """Choose the strategy of a Deployment of ``replicas`` pods in the state ``observed``."""
    given = spec.rollout
    surge, why = DEFAULT_SURGE if given.max_surge is None else given.max_surge, ""
    paid = spec.affordable_replicas
    if paid is not None and surge > paid - replicas:
        surge, why = max(0, paid - replicas), f"budget.maxGPUs pays for {paid} replicas"
    if surge > 0 and given.max_surge is None and given.max_unavailable != 0:
        blocking, deployment = find_blocking(observed), observed.deployment
        if blocking is not None:
            surge, why = 0, f"a new replica needs {blocking.what}, which {blocking.pod} holds"
        elif deployment is not None and deployment.max_surge == 0 and (deployment.rolling or deployment.unseen):
            surge, why = 0, "a new replica needs what an old one holds"
    unavailable = given.max_unavailable or 0
    return Strategy(surge, max(1, unavailable) if surge == 0 else unavailable, why)


def explain_lost_surge(there: DeploymentView | None, strategy: Strategy) -> str:
    """Reason for which a rollout goes on without the surge that it began with; empty where it does not."""
    if there is None or not there.rolling or not strategy.why or strategy.max_surge or not there.max_surge:
        return ""
    return f"maxSurge {there.max_surge}->0, old replicas end before new ones start: {strategy.why}"
