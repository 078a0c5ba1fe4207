"""What is observed of a fleet at one moment: the one carrier from operator or simulation into the law."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from paternoster_contract.stats import EngineStats


@dataclass(frozen=True, slots=True)
class Observation:
    """What the cluster, the engines and the gateways report of one fleet."""

    now: float
    """Seconds, on the caller's clock."""
    replicas: int | None
    """Replicas that the Deployment is to have; None where there is none yet, so that those of the manifest count."""
    serving: Collection[str]
    """Pods that take requests."""
    pending: Collection[str]
    """Pods that do not serve yet."""
    draining: Collection[str]
    """Pods that finish what they have and end."""
    engines: Mapping[str, EngineStats]
    """Reports of pods that answered, less those that were refused, by pod."""
    held: int = 0
    """Requests that gateways hold for want of a replica."""
    in_flight: int = 0
    """Requests that gateways have sent on and not yet answered in full."""
    gateway_requests: Mapping[str, int] = field(default_factory=dict)
    """Requests for the fleet that have come to each gateway process, by its instance."""
    idle_seconds: float | None = None
    """Since the last request, as gateways report it; None where none of them had one."""
    startup_seconds: float | None = None
    """Mean time from a pod's creation until it serves; None while no start was seen."""
    live_cap: int | None = None
    """Live cap to begin with where no engine reports one."""
    refused_reports: tuple[str, ...] = ()
    """Reports of engines that were not believed, by pod, with the reason."""
    failed_calls: Mapping[str, str] = field(default_factory=dict)
    """Call for want of which there is no report, with its URL and what came of it, by pod."""

    @property
    def num_replicas(self) -> int:
        """Replicas that the Deployment is to have; 0 where there is none yet."""
        return self.replicas or 0
