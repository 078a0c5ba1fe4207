"""What the law decides by: one set of numbers of a fleet, at a moment and over a window."""

from dataclasses import dataclass
from typing import TypeVar

from paternoster_contract.stats import EngineStats, Unreported

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one serving replica carried in the window, on average."""

    running: float
    """Sequences at once."""
    kv_usage: float
    """Share of its KV blocks in use, 0..1."""
    inter_token_seconds: float | None
    """Mean time between two tokens of a request; None where none came."""
    step_sums: tuple[float, ...] = ()
    """Growth of the ``step_sums`` of its ``/stats``; empty where it reports none."""
    peak_running: int = 0
    kv_peak_usage: float = 0.0
    kv_per_sequence: float = 0.0
    """Share of its KV blocks that one sequence held, on average over the samples with any; 0 without."""
    busy_share: float = 1.0
    """Share of the window in which it ran anything, 0..1."""

    @property
    def computed_tokens(self) -> float:
        """Tokens of prompts and of answers that went through its model."""
        return self.step_sums[1] + self.step_sums[2] if self.step_sums else 0.0

    @property
    def step_seconds(self) -> float:
        """Time that its steps took; 0 where it reports none."""
        return self.step_sums[5] if self.step_sums else 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """The state of a fleet at one moment and what happened in the window before it."""

    ready: int = 0
    """Replicas that serve."""
    pending: int = 0
    """Replicas on their way."""
    fresh: bool = False
    """Every serving replica has a recent report."""
    stale_pods: tuple[str, ...] = ()
    """Serving replicas without a recent report."""
    refused_reports: tuple[str, ...] = ()
    """Reports of engines that were not believed, by pod, with the reason."""
    failed_calls: tuple[str, ...] = ()
    """Failed calls of the pods without a recent report: URL, what came of it, and what to do."""
    reports: tuple[EngineStats, ...] = ()
    """The recent reports of serving replicas."""
    unreported: tuple[Unreported, ...] = ()
    """What some of the serving replicas do not report."""
    window_seconds: float = 0.0

    running: int = 0
    waiting: int = 0
    held: int = 0
    """Requests that the gateway holds for want of a replica."""
    current: bool = True
    """Gateways or all serving replicas reported at this observation, so that every present request is counted."""
    last_request: float | None = None
    """When the fleet last had a request, by the caller's clock; None where there was none."""
    above_cap: int = 0
    """Sequences that run above the live cap of their engine, since it was cut."""
    peak_running: int = 0
    """Most sequences one engine ran at once in the window."""
    lowest_cap: int = 0
    """Smallest live cap of the serving replicas."""
    token_capacity: int = 0
    """Smallest max_batched_tokens of the serving replicas; 0 where one has no live token budget."""
    token_budget: int = 0
    """Smallest live token budget of the serving replicas."""
    max_queue_milliseconds: int = 0
    """Longest wait in the queue that the serving replicas allow, of the strictest of them; 0 where none has a limit."""
    kv_usage: float = 0.0
    """Mean share of KV blocks in use, 0..1."""
    kv_peak_usage: float = 0.0
    """Highest share of KV blocks one engine had in use in the window."""

    replicas: tuple[ReplicaLoad, ...] = ()
    """Each serving replica that reported, over the window."""
    arrived: int = 0
    """Requests that came, whether an engine admitted them to its queue or all queues were full."""
    refused: int = 0
    """Number of those that were refused because queues were full."""
    started: int = 0
    """Requests that ran for the first time."""
    finished: int = 0
    """Requests that ended."""
    generated: int = 0
    """Output tokens."""
    startup_seconds: float | None = None
    """Time from a pod's creation until it serves, as learnt; None when no start was seen."""

    preempted: int = 0
    """Distinct requests preempted in the window."""
    computed_tokens: int = 0
    recomputed_tokens: int = 0

    @property
    def demand(self) -> int:
        """Requests that want to run now."""
        return self.running + self.waiting + self.held

    @property
    def silent(self) -> bool:
        """No serving replica has a recent report, so that each number of engines here is 0 for want of one."""
        return bool(self.ready) and len(self.stale_pods) == self.ready

    def has_numbers(self, *names: Unreported) -> bool:
        """Whether serving replicas report what ``names`` are for; True where none serves, as 0 is right then."""
        return not self.silent and not {*names} & {*self.unreported}

    def reported_number(self, number: Number, *names: Unreported) -> Number | None:
        """``number``, which ``names`` are for, where the replicas report it."""
        return number if self.has_numbers(*names) else None

    def describe_number(self, text: str, *names: Unreported) -> str:
        """``text``, which has a number that ``names`` are for, where the replicas report it."""
        return text if self.has_numbers(*names) else "not reported"

    @property
    def had_no_request(self) -> bool:
        """None is there, and none came in the window."""
        return self.demand == self.arrived == self.refused == 0

    @property
    def queued(self) -> int:
        return self.waiting + self.held

    @property
    def arrival_rate(self) -> float:
        """Requests a second that came."""
        return self.arrived / self.window_seconds if self.window_seconds > 0 else 0.0

    @property
    def generation_tokens_per_second(self) -> float:
        """Output tokens a second of the whole fleet."""
        return self.generated / self.window_seconds if self.window_seconds > 0 else 0.0

    @property
    def mean_running(self) -> float:
        """Sequences at once in the whole fleet, on average over the window."""
        return sum(load.running for load in self.replicas)

    @property
    def inter_token_seconds(self) -> float | None:
        """Mean time between two tokens of a request, over the replicas; None where none came."""
        paces = [load.inter_token_seconds for load in self.replicas if load.inter_token_seconds is not None]
        return sum(paces) / len(paces) if paces else None

    @property
    def recomputed_share(self) -> float:
        """Share of the tokens that went through the model for a second time, because of a preemption."""
        return self.recomputed_tokens / max(self.computed_tokens, 1)

    @property
    def preemption_rate(self) -> float:
        """Preempted over finished requests. Where more were preempted than finished, the rate is 1."""
        return self.preempted / max(self.finished, self.preempted, 1)
