"""One frozen value: what cluster, engines and gateways report of a fleet at one moment."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from paternoster_contract import labels
from paternoster_contract.stats import EngineStats, GatewayStats
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.engines.adapter import EngineAdapter
from paternoster_operator.engines.catalogue import ADAPTERS, TARGET_ADAPTERS
from paternoster_operator.plausible import Refusal
from paternoster_operator.pods.cap_faults import CapFaults
from paternoster_operator.pods.placement import Placement, read_placement
from paternoster_operator.pods.reading import read_message, read_pod, read_target_pod
from paternoster_operator.pods.view import EngineAddress, PodView

PodFields = Mapping[str, Mapping[str, Any]]
"""Fields of :class:`PodView` that are read elsewhere than from the pod, by the pod's name."""


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """The engine Deployment as its controller reports it."""

    generation: int
    observed_generation: int
    spec_replicas: int
    replicas: int
    updated: int
    available: int
    progress_failed: bool
    message: str
    create_failure: str = ""
    """Why its controller cannot make a pod, in the API server's words; empty while it can."""
    max_surge: int | None = None
    """Pods that a rollout may have beyond the replicas; None where the Deployment says it otherwise."""
    template: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Spec of the pods that it makes now."""

    @property
    def placement(self) -> Placement:
        """Placement of these pods."""
        return read_placement(self.template)

    @property
    def rolling(self) -> bool:
        """Some pod runs an older template."""
        return self.updated < self.replicas

    @property
    def unseen(self) -> bool:
        """Its controller has not yet looked at the last change."""
        return self.observed_generation < self.generation

    @property
    def settled(self) -> bool:
        """Whether there are as many pods as wanted, all of the latest template and available."""
        return not self.unseen and self.updated == self.spec_replicas == self.replicas == self.available


@dataclass(frozen=True, slots=True)
class ObservedKeys:
    """Keys of a fleet's hops as their Secrets have them."""

    admin_roots: Sequence[str] | None = field(default=None, repr=False)
    """Roots that all fleets' keys of the admin API are derived from; None while they cannot be read."""
    gateway_roots: Sequence[str] = field(default=(), repr=False)
    admin: Sequence[str] = field(default=(), repr=False)
    """Keys of the engines' admin API, as read last; the first that they take is used."""
    fault: ClusterError | None = None
    """Fault for which one of these cannot be read."""
    client_fault: ClusterError | None = None
    """Fault for which some clients have no access."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation of a fleet: the objects of the cluster first, then what else was read."""

    deployment: DeploymentView | None
    pods: tuple[PodView, ...]
    is_target: bool = False
    """Whether the operator did not make them: ``spec.targetRef`` names the Deployment."""
    foreign_fields: tuple[str, ...] = ()
    """Fields that other managers set in its children, in words, one for each child."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Time of the observation."""
    names: tuple[str, ...] = ()
    """The served names that it has."""
    lora_adapters: Sequence[ModelAdapter] | None = None
    """Adapters of the manifest whose names it has, too; None where that is not known."""
    unnamed: tuple[str, str] | None = None
    """Reason and message for which it has other names than its manifest asks for."""
    starts_unnamed: bool = False
    """True where it runs replicas all the same."""
    refusal: tuple[str, str] | None = None
    """Reason and message for which nothing of it may be changed."""
    keys: ObservedKeys = field(default_factory=ObservedKeys)
    engines: Mapping[str, EngineStats] = field(default_factory=dict)
    """Plausible reports of engines, by pod."""
    samples: Mapping[str, EngineStats] = field(default_factory=dict)
    """The last such report of each pod that may answer, of an earlier observation too."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Refusals of the other engines' reports, by pod."""
    cap_faults: CapFaults = field(default_factory=CapFaults)
    """Why engines do not hold the live cap that they were set to."""
    gateways: Sequence[GatewayStats] = ()
    """Reports of the gateways."""
    num_routing: int = 0
    """Gateways that send requests for all its names to it."""
    routes_share: int | None = None
    """Bytes of the routing table that its namespace has, where its row is beyond them."""
    startup: Mapping[str, Any] | None = None
    """Start-up times of its replicas, as in the status."""
    observation: Observation = field(default_factory=lambda: Observation(0.0, 0, (), (), (), {}))
    signals: Signals = field(default_factory=Signals)
    """Signals of a window of observations, which the law decides by."""

    @classmethod
    def from_cluster(cls, deployment: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> "Observed":
        views = sorted((read_pod(pod) for pod in pods), key=lambda pod: pod.name)
        return cls(None if deployment is None else _read_deployment(deployment), tuple(views))

    @classmethod
    def from_target(
        cls, deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], engine: EngineAddress
    ) -> "Observed":
        views = sorted((read_target_pod(pod, engine) for pod in pods), key=lambda pod: pod.name)
        return cls(_read_deployment(deployment), tuple(views), is_target=True)

    @property
    def time(self) -> str:
        """Time of the observation, in RFC 3339."""
        return self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def adapters(self) -> dict[str, EngineAdapter]:
        """Adapter of the engine in each pod, by its name: a rollout from one engine to another has both."""
        adapters = TARGET_ADAPTERS if self.is_target else ADAPTERS
        return {pod.name: adapters[pod.engine_type] for pod in self.pods}

    def with_applied(self, deployment: Mapping[str, Any] | None, foreign_fields: Iterable[str]) -> "Observed":
        """Copy with the Deployment as it is now, where it was sent."""
        view = self.deployment if deployment is None else _read_deployment(deployment)
        return replace(self, deployment=view, foreign_fields=tuple(filter(None, foreign_fields)))

    @property
    def serving(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.serving)

    @property
    def pending(self) -> tuple[PodView, ...]:
        """Pods that are meant to serve and do not yet."""
        return tuple(pod for pod in self.live if not pod.serving)

    @property
    def starting(self) -> tuple[PodView, ...]:
        """Pods of :attr:`pending` of the latest template: a rollout keeps older ones until newer ones serve.

        The latest is the youngest pod's, also after a way back to an older one.
        """
        youngest = max((pod.created or "" for pod in self.pods), default="")
        templates = {pod.template for pod in self.pods if (pod.created or "") == youngest}
        return tuple(pod for pod in self.pending if pod.template in templates)

    @property
    def answering(self) -> tuple[PodView, ...]:
        """Pods whose engine may tell of itself: also those that drain, or that somebody has drained."""
        return tuple(pod for pod in self.pods if pod.phase == "Running")

    @property
    def fetching(self) -> tuple[PodView, ...]:
        """Pods in which the container of that name fetches a model now."""
        return tuple(pod for pod in self.starting if pod.container == labels.MODEL_CONTAINER and pod.running_since)

    @property
    def live(self) -> tuple[PodView, ...]:
        """Its replicas: what failed, was evicted, is being deleted or drained is none."""
        return tuple(pod for pod in self._there if pod.drained_since is None)

    @property
    def drained(self) -> tuple[PodView, ...]:
        """Pods that get no more requests and end once they are idle, because the fleet has replicas to spare."""
        return tuple(pod for pod in self._there if pod.drained_since is not None)

    @property
    def _there(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if not pod.deleting and not pod.has_ended)

    @property
    def outdated(self) -> tuple[PodView, ...]:
        """Replicas of an older template that a rollout has yet to replace."""
        if self.deployment is None or not self.deployment.rolling:
            return ()
        if self.deployment.updated == 0:
            return self.live
        latest = {pod.template for pod in self.starting}
        return tuple(pod for pod in self.live if latest and pod.template not in latest)

    def with_fields(self, *fields: PodFields) -> "Observed":
        """Copy with all ``fields`` of the views of pods."""
        made = {pod.name: {k: v for each in fields for k, v in each.get(pod.name, {}).items()} for pod in self.pods}
        return replace(self, pods=tuple(replace(pod, **made[pod.name]) for pod in self.pods))

    def with_drained(self, names: Collection[str]) -> "Observed":
        """Copy in which those pods are drained, as of now where they were not, and no others."""
        since = {pod.name: pod.drained_since or self.time for pod in self.pods if pod.name in names}
        return self.with_fields({pod.name: {"drained_since": since.get(pod.name)} for pod in self.pods})

    @property
    def draining(self) -> tuple[PodView, ...]:
        """Pods that finish what they have: drained or being deleted."""
        return tuple(pod for pod in self.pods if pod.deleting or pod in self.drained)


def _read_deployment(deployment: Mapping[str, Any]) -> DeploymentView:
    status = deployment.get("status", {})
    progressing: Mapping[str, Any] = next((c for c in status.get("conditions", []) if c["type"] == "Progressing"), {})
    failed = progressing.get("status") == "False"
    conditions = status.get("conditions", [])
    refused = next((c for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True"), None)
    return DeploymentView(
        generation=deployment["metadata"].get("generation", 0),
        observed_generation=status.get("observedGeneration", -1),
        spec_replicas=deployment["spec"].get("replicas", 1),
        replicas=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        available=status.get("availableReplicas", 0),
        progress_failed=failed,
        message=read_message(progressing) if failed else "",
        create_failure="" if refused is None else read_message(refused) or "pods cannot be created",
        max_surge=_max_surge(deployment["spec"]),
        template=deployment["spec"].get("template", {}).get("spec", {}),
    )


def _max_surge(spec: Mapping[str, Any]) -> int | None:
    surge = spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge")
    return surge if isinstance(surge, int) else None
