"""An engine pod as the operator sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paternoster_contract import labels
from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.pods.engine_fault import EngineFault
from paternoster_operator.pods.events import PodEvent
from paternoster_operator.pods.placement import Placement, read_placement

MAX_QUEUED_REQUESTS: int = EngineArgs.model_fields["max_queued_requests"].default
EVENTS_AFTER_SECONDS = 3.0
"""Age from which the events of a pod that has not started are listed."""
UNBOUND = "unbound immediate PersistentVolumeClaims"
"""In the scheduler's message about a pod with a claim that has no volume."""
_ENDED = ("Succeeded", "Failed")
PREPARING = ("ContainerCreating", "PodInitializing")
"""The kubelet's waiting reasons while it prepares volumes, network, images or init containers."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container's last run ended, as the kubelet has it."""

    status: int
    """Its exit status; above 128 by the signal ``status - 128``."""
    reason: str
    """Such as Error, OOMKilled or StartError."""
    message: str
    """The line of its log that says most of why, or the runtime's words where it never ran."""
    lasted_seconds: float | None = None
    """Between start and end; None where that is not known."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Which engine runs in a pod that the operator did not make, and where it answers."""

    type: RuntimeType
    port: int


@dataclass(frozen=True, slots=True)
class PodView:
    """An engine pod. Fields about a container are of the first that fails, or else of the first that is not ready."""

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
    """Message in the words of kubelet or scheduler."""
    container: str = labels.ENGINE_CONTAINER
    """Name of the container that these fields describe."""
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
    """URL of its engine's admin port; ``url`` where the engine answers the operator on its one port."""
    drain_wanted: bool = False
    """Whether an annotation asks the pod to admit no more requests."""
    drained_since: str | None = None
    """Since when it gets no more requests, to end once it is idle, in RFC 3339; None where it is to serve."""
    lora_adapters: tuple[str, ...] = ()
    """Adapters that its engine has loaded in its present run, as its annotation has them."""
    startup_seconds: float | None = None
    """From its creation until it was ready; None while it is not, and where its engine ended on the way."""
    download_seconds: float = 0.0
    """That the container took which fetched its model; 0 where there was none."""
    download: FetchStatus | None = None
    """What the container that fetches its model reported last; None where none does, or it did not answer."""
    capacity: int | None = None
    """max_num_seqs in its command; None where that does not say."""
    queue: int = MAX_QUEUED_REQUESTS
    """max_queued_requests likewise; without it the default."""
    engine_type: RuntimeType = RuntimeType.PATERNOSTER
    """Which engine it runs."""
    upstream_model: str = ""
    """The model's name at its engine; empty where that has the served names."""
    served_names: tuple[str, ...] = ()
    """served_model_name likewise; empty where its command does not say."""
    ended_reason: str = ""
    """Why a pod of phase Failed ended as a whole, such as Evicted; empty where its containers ended it."""
    ended_message: str = ""
    gates: tuple[str, ...] = ()
    """Scheduling gates that are still set."""
    scheduled: bool = False
    """Whether it has a node."""
    node: str = ""
    node_silent: bool = False
    """Its node's kubelet reports nothing, so the node controller took the pod's readiness; its engine may serve on."""
    volume_claims: tuple[str, ...] = ()
    """PersistentVolumeClaims that it mounts."""
    readiness_gate: str = ""
    """The kubelet's message while containers are ready and readiness gates are not; else empty."""
    disruption: "Disruption | None" = None
    """None unless something other than its Deployment ends it."""
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The pod's spec."""
    has_served: bool = False
    """Whether it was ready at an earlier look, in whichever run."""
    served_in_this_run: bool = False
    """Whether it has served in its present run, so that it has not ended since."""
    recovers: bool = False
    """Whether it has served, ended once or twice within minutes, and is started again."""
    engine_fault: EngineFault | None = None
    """What the operator met at its engine; None where that is ours, serves, or does not run."""
    events: tuple[PodEvent, ...] = ()
    """Events about it, oldest first; read only where its status does not say why it does not start."""

    @property
    def serving(self) -> bool:
        """May be sent new requests; gateways find out themselves whether a replica on a silent node answers."""
        return (
            (self.ready or self.node_silent)
            and not self.deleting
            and self.url is not None
            and self.drained_since is None
            and (self.engine_fault is None or not self.engine_fault.lasting)
        )

    def find_unserved(self, names: Sequence[str], adapters: Sequence[str] = ()) -> tuple[str, ...]:
        """Names among ``names`` that its engine was started without, and among ``adapters`` that it has not loaded."""
        missing = [name for name in names if self.served_names and name not in self.served_names]
        return *missing, *(name for name in adapters if name not in self.lora_adapters)

    def age_at(self, now: str) -> float:
        """Seconds since its creation, at the RFC 3339 time ``now``; 0 where that is not known."""
        if not self.created:
            return 0.0
        return (datetime.fromisoformat(now) - datetime.fromisoformat(self.created)).total_seconds()

    @property
    def is_preparing(self) -> bool:
        """Whether the kubelet still prepares the pod, before it starts containers."""
        if self.waiting_reason is None:
            return self.phase == "Pending" and self.running_since is None and self.ended is None
        return self.waiting_reason in PREPARING

    @property
    def waits_for_volume(self) -> bool:
        """Whether a claim that it mounts has no volume yet: the events about the claim say why."""
        return self.waiting_reason == "Unschedulable" and UNBOUND in self.message

    def needs_events(self, now: str) -> bool:
        """Whether its status does not say why it does not start. ``now``: RFC 3339 time."""
        if not self.scheduled or self.has_ended or self.deleting or self.age_at(now) < EVENTS_AFTER_SECONDS:
            return False
        return (
            self.is_preparing
            or self.waiting_reason in ("CrashLoopBackOff", "PostStartHookError")
            or (self.ended is not None and self.ended.status != 0)
        )

    @property
    def ends(self) -> int:
        """Times that containers of it have ended, the present wait for another start included."""
        return self.restarts + (self.running_since is None and self.ended is not None)

    def has_run_since(self, seconds: float, now: str) -> bool:
        """Whether its present run is ``seconds`` old at the RFC 3339 time ``now``."""
        if self.running_since is None:
            return False
        return (datetime.fromisoformat(now) - datetime.fromisoformat(self.running_since)).total_seconds() >= seconds

    @property
    def placement(self) -> Placement:
        """Read on demand, since only a rollout that waits compares pods."""
        return read_placement(self.spec)

    @property
    def has_ended(self) -> bool:
        """Whether its containers will never run again: evicted, refused by its node, or lost with it. No replica."""
        return self.phase in _ENDED

    @property
    def holds_devices(self) -> bool:
        """Whether it is on a node and occupies its resources there."""
        return not self.has_ended and self.waiting_reason not in ("Unschedulable", "SchedulingGated")


@dataclass(frozen=True, slots=True)
class Disruption:
    """The disruption that ended, or will end, a pod (condition ``DisruptionTarget``, or eviction by the kubelet)."""

    reason: str
    """Such as EvictionByEvictionAPI, PreemptionByScheduler or Evicted."""
    message: str
    since: str
    """RFC 3339."""
