"""What is there: one frozen view of an LLMDeployment's Deployment and pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from paternoster_contract import labels
from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.settings.engine_args import EngineArgs

MAX_QUEUED_REQUESTS: int = EngineArgs.model_fields["max_queued_requests"].default


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container's last run ended, as the kubelet has it."""

    status: int
    """Its exit status; above 128 by the signal ``status - 128``."""
    reason: str
    """Such as Error, OOMKilled or StartError."""
    said: str
    """The last line of its log, or the runtime's words where it never ran."""


@dataclass(frozen=True, slots=True)
class PodView:
    """An engine pod. Where it has several containers, what is said is of the one that the others wait for."""

    name: str
    url: str | None
    """Base URL of its engine; None while it has no address."""
    phase: str
    ready: bool
    deleting: bool
    restarts: int
    waiting_reason: str | None
    """Why its container or its scheduling waits, such as ImagePullBackOff or Unschedulable."""
    message: str
    """The same in the words of kubelet or scheduler."""
    container: str = labels.ENGINE_CONTAINER
    """Name of the container that this is said of."""
    running_since: str | None = None
    """When its present run began, in RFC 3339; None while it does not run."""
    ended: Ended | None = None
    """None while it has not ended yet."""
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    created: str | None = None
    """When, in RFC 3339."""
    template: str = ""
    """Hash of the pod template that it was made from."""
    missing_claim: str = ""
    """Name of the template that one of its resource claims has not been made from yet; empty where all are."""
    admin_url: str | None = None
    """As ``url``, of its engine's admin port."""
    drain_wanted: bool = False
    """Somebody asks, by an annotation, that it admits no more."""
    startup_seconds: float | None = None
    """From its creation until it was ready; None while it is not, and where its engine ended on the way."""
    download_seconds: float = 0.0
    """That the container took which fetched its model; 0 where there was none."""
    download: FetchStatus | None = None
    """What the container that fetches its model told last; None where none does, or it did not answer."""
    capacity: int | None = None
    """max_num_seqs in its command; None where that does not say."""
    queue: int = MAX_QUEUED_REQUESTS
    """max_queued_requests likewise; without it the default."""

    @property
    def serving(self) -> bool:
        """May be sent new requests."""
        return self.ready and not self.deleting and self.url is not None

    @property
    def holds_devices(self) -> bool:
        """On a node, where nobody else gets what it was given."""
        return self.phase not in _ENDED and self.waiting_reason != "Unschedulable"


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
        """As many pods as wanted, all of the latest template and available."""
        return not self.unseen and self.updated == self.spec_replicas == self.replicas == self.available


@dataclass(frozen=True, slots=True)
class Observed:
    """One look at a fleet."""

    deployment: DeploymentView | None
    pods: tuple[PodView, ...]

    @classmethod
    def from_cluster(cls, deployment: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> "Observed":
        views = sorted((_pod(pod) for pod in pods), key=lambda pod: pod.name)
        return cls(None if deployment is None else _deployment(deployment), tuple(views))

    def with_deployment(self, deployment: Mapping[str, Any]) -> "Observed":
        """The same pods below the Deployment as it is now."""
        return Observed(_deployment(deployment), self.pods)

    @property
    def serving(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.serving)

    @property
    def pending(self) -> tuple[PodView, ...]:
        """Pods that are meant to serve and do not yet."""
        return tuple(pod for pod in self.pods if not pod.serving and not pod.deleting and pod.phase not in _ENDED)

    @property
    def starting(self) -> tuple[PodView, ...]:
        """Those of :attr:`pending` of the latest template: a rollout keeps older ones until newer ones serve.

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

    def with_downloads(self, told: Mapping[str, FetchStatus]) -> "Observed":
        """The same with what those pods tell, by name."""
        return Observed(self.deployment, tuple(replace(pod, download=told.get(pod.name)) for pod in self.pods))

    @property
    def draining(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.deleting)


_ENDED = ("Succeeded", "Failed")


def _pod(pod: Mapping[str, Any]) -> PodView:
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    container = _awaited(containers)
    waiting = container.get("state", {}).get("waiting")
    scheduled = conditions.get("PodScheduled", {})
    if waiting is None and scheduled.get("status") == "False":
        waiting = scheduled
    restarts = sum(container.get("restartCount", 0) for container in containers)
    ready = conditions.get("Ready", {})
    resources = _resources(spec, container.get("name"))
    return PodView(
        name=metadata["name"],
        url=_url(spec, status, labels.ENGINE_PORT_NAME),
        admin_url=_url(spec, status, labels.ADMIN_PORT_NAME),
        phase=status.get("phase", "Pending"),
        ready=ready.get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=restarts,
        waiting_reason=None if waiting is None else waiting.get("reason"),
        message="" if waiting is None else waiting.get("message", ""),
        container=container.get("name", labels.ENGINE_CONTAINER),
        running_since=container.get("state", {}).get("running", {}).get("startedAt"),
        ended=_ended(container),
        requests=resources.get("requests", {}),
        limits=resources.get("limits", {}),
        created=metadata.get("creationTimestamp"),
        template=metadata.get("labels", {}).get(labels.TEMPLATE_HASH, ""),
        missing_claim=_missing_claim(spec, status),
        drain_wanted=metadata.get("annotations", {}).get(labels.DRAIN) == "true",
        capacity=_flag(spec, "--max-num-seqs"),
        queue=_flag(spec, "--max-queued-requests") or MAX_QUEUED_REQUESTS,
        startup_seconds=None if restarts else _startup_seconds(metadata, ready),
        download_seconds=_download_seconds(status),
    )


def _flag(spec: Mapping[str, Any], name: str) -> int | None:
    """The number that a flag of the engine's command has."""
    engine = _engine(spec)
    words = [*engine.get("command", []), *engine.get("args", [])]
    if name in words[:-1] and (text := words[words.index(name) + 1]).isdecimal():
        return int(text)
    return None


def _engine(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine's container, whatever runs beside it."""
    none: Mapping[str, Any] = {}
    return next((each for each in spec.get("containers", []) if each["name"] == labels.ENGINE_CONTAINER), none)


def _missing_claim(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    made = {claim["name"] for claim in status.get("resourceClaimStatuses", [])}
    wanted = {claim["name"]: claim.get("resourceClaimTemplateName", "") for claim in spec.get("resourceClaims", [])}
    return next((template for name, template in wanted.items() if name not in made), "")


def _startup_seconds(metadata: Mapping[str, Any], ready: Mapping[str, Any]) -> float | None:
    created, since = metadata.get("creationTimestamp"), ready.get("lastTransitionTime")
    if ready.get("status") != "True" or created is None or since is None:
        return None
    # Two clocks wrote these, the API server's and the node's.
    return max(0.0, (datetime.fromisoformat(since) - datetime.fromisoformat(created)).total_seconds())


def _download_seconds(status: Mapping[str, Any]) -> float:
    containers: Sequence[Mapping[str, Any]] = status.get("initContainerStatuses", [])
    none: Mapping[str, Any] = {}
    ran = next((each.get("state", {}) for each in containers if each.get("name") == labels.MODEL_CONTAINER), none)
    began, ended = (ran.get("terminated", {}).get(key) for key in ("startedAt", "finishedAt"))
    if began is None or ended is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


def _awaited(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The container that the others wait for: they start in this order, and an init container that is done is ready."""
    none: Mapping[str, Any] = {}
    return next((each for each in containers if not each.get("ready")), containers[-1] if containers else none)


def _resources(spec: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """Of the container called so; of the first before the kubelet knows of any."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])] if name else spec.get("containers", [])
    found: Mapping[str, Any] = next((c for c in containers if name is None or c.get("name") == name), {})
    resources: Mapping[str, Any] = found.get("resources", {})
    return resources


def _ended(container: Mapping[str, Any]) -> Ended | None:
    """Now, or else the time before."""
    states = (container.get("state", {}), container.get("lastState", {}))
    ended = next((state["terminated"] for state in states if "terminated" in state), None)
    if ended is None:
        return None
    # The kubelet keeps the end of the log as the message.
    lines = ended.get("message", "").strip().splitlines()
    return Ended(ended.get("exitCode", 0), ended.get("reason", ""), lines[-1] if lines else "")


def _url(spec: Mapping[str, Any], status: Mapping[str, Any], port_name: str) -> str | None:
    address = status.get("podIP")
    ports = _engine(spec).get("ports", [])
    port = next((port["containerPort"] for port in ports if port.get("name") == port_name), None)
    if not address or port is None:
        return None
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


def _deployment(deployment: Mapping[str, Any]) -> DeploymentView:
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
        message=progressing.get("message", "") if failed else "",
        create_failure="" if refused is None else refused.get("message", "") or "pods cannot be created",
    )
