"""An engine pod as the operator sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paternoster_contract import labels
from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.pods.events import PodEvent
from paternoster_operator.pods.placement import Placement, read_placement

MAX_QUEUED_REQUESTS: int = EngineArgs.model_fields["max_queued_requests"].default
_ENDED = ("Succeeded", "Failed")
PREPARING = ("ContainerCreating", "PodInitializing")
"""Why containers wait whose volumes, network, images or init containers are not there yet (kubelet)."""


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
    """An engine pod, told of one container: the first that fails, or else the first that the others wait for."""

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
    ended_reason: str = ""
    """Why a pod of phase Failed ended as a whole, such as Evicted; empty where its containers ended it."""
    ended_message: str = ""
    gates: tuple[str, ...] = ()
    """Scheduling gates that are still set."""
    scheduled: bool = False
    """A node is chosen."""
    node: str = ""
    volume_claims: tuple[str, ...] = ()
    """PersistentVolumeClaims that it mounts."""
    readiness_gate: str = ""
    """Why it is not ready although its containers are, in the kubelet's words; empty where they are not."""
    disruption: "Disruption | None" = None
    """None where nothing but its Deployment ends it."""
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As in its document."""
    events: tuple[PodEvent, ...] = ()
    """About it, oldest first; read only where its status does not say why it does not start."""

    @property
    def serving(self) -> bool:
        """May be sent new requests."""
        return self.ready and not self.deleting and self.url is not None

    def age(self, now: str) -> float:
        """Seconds since its creation, at the RFC 3339 time ``now``; 0 where that is not known."""
        if not self.created:
            return 0.0
        return (datetime.fromisoformat(now) - datetime.fromisoformat(self.created)).total_seconds()

    @property
    def placement(self) -> Placement:
        """Read when it is asked for: only a rollout that waits compares pods."""
        return read_placement(self.spec)

    @property
    def has_ended(self) -> bool:
        """Its containers will not run again: evicted, refused by its node, or lost with it. It is no replica."""
        return self.phase in _ENDED

    @property
    def holds_devices(self) -> bool:
        """On a node, where no other pod gets what it was given."""
        return not self.has_ended and self.waiting_reason not in ("Unschedulable", "SchedulingGated")


@dataclass(frozen=True, slots=True)
class Disruption:
    """What ended or is about to end a pod from outside of its Deployment (condition ``DisruptionTarget``)."""

    reason: str
    """Such as EvictionByEvictionAPI, PreemptionByScheduler or Evicted."""
    message: str
    since: str
    """RFC 3339."""
