"""What the law sees: one set of numbers over a window, from samples of every engine.

Counters are summed from sample to sample, so a restarted engine (another ``instance``) adds what it counted since its
start instead of a negative jump.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import add, sub
from typing import TypeVar

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.stats import EngineStats

N = TypeVar("N", int, float)

STALE_SECONDS = 15.0
"""Age of an engine's last sample beyond which it says nothing of now: three missed scrapes."""
LONGEST_WINDOW_SECONDS = 600.0


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
    """Growth of the ``step_sums`` of its ``/stats``; empty where it tells none."""

    @property
    def computed_tokens(self) -> float:
        """Tokens of prompts and of answers that went through its model."""
        return self.step_sums[1] + self.step_sums[2] if self.step_sums else 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """The state of a fleet at one moment and what happened in the window before it."""

    ready: int = 0
    """Replicas that serve."""
    pending: int = 0
    """Replicas on their way."""
    fresh: bool = False
    """Every serving replica reported lately."""
    stale_pods: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """What engines told and was not believed, by pod."""
    window_seconds: float = 0.0

    running: int = 0
    waiting: int = 0
    held: int = 0
    """Requests that the gateway holds for want of a replica."""
    current: bool = True
    """Gateways or all serving replicas have reported in this very look: a request that is there now was seen."""
    last_request: float | None = None
    """When the fleet last had a request, by the caller's clock; None where none is known of."""
    above_cap: int = 0
    """Sequences that run above the live cap of their engine, since it was cut."""
    peak_running: int = 0
    """Most sequences one engine ran at once in the flow window."""
    capacity: int = 0
    """Sum of the live caps of the serving replicas."""
    lowest_cap: int = 0
    highest_cap: int = 0
    engine_capacity: int = 0
    """Smallest max_num_seqs of the serving replicas: no live cap can be above it."""
    token_capacity: int = 0
    """Smallest max_batched_tokens of the serving replicas; 0 where one has no live token budget."""
    token_budget: int = 0
    """Smallest live token budget of the serving replicas."""
    kv_blocks: int = 0
    """Blocks of the smallest KV pool of the serving replicas."""
    kv_block_size: int = 0
    """Tokens of one."""
    max_model_len: int = 0
    """Longest prompt plus output that every serving replica takes, tokens; 0 where one does not tell."""
    default_parameters: DefaultParameters | None = None
    """Sampling settings on which all serving replicas agree; None where none reports any."""
    kv_usage: float = 0.0
    """Mean share of KV blocks in use, 0..1."""
    kv_peak_usage: float = 0.0
    """Highest share of KV blocks one engine had in use in the flow window."""

    replicas: tuple[ReplicaLoad, ...] = ()
    """Each serving replica that reported, over the flow window."""
    flow_seconds: float = 0.0
    """The window of ``replicas`` to ``first_token_seconds``: a change of the cap, which
    begins the other window anew, is no change of the traffic."""
    arrived: int = 0
    """Requests that engines took into their queues."""
    departed: int = 0
    """Requests that ended."""
    generated: int = 0
    """Output tokens."""
    first_token_seconds: float | None = None
    """Mean time from arrival to first token; None where none came."""
    startup_seconds: float | None = None
    """Time from a pod's creation until it serves, as learnt; None when no start was seen."""

    finished: int = 0
    preempted: int = 0
    """Distinct requests preempted in the window."""
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    generation_tokens_per_second: float = 0.0

    @property
    def demand(self) -> int:
        """Requests that want to run now."""
        return self.running + self.waiting + self.held

    @property
    def queued(self) -> int:
        return self.waiting + self.held

    @property
    def arrival_rate(self) -> float:
        """Requests a second that engines took in."""
        return self.arrived / self.flow_seconds if self.flow_seconds > 0 else 0.0

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
    def preemption_rate(self) -> float:
        """Preempted over finished requests. Where more were preempted than finished, the rate is 1."""
        return self.preempted / max(self.finished, self.preempted, 1)


@dataclass(slots=True)
class SignalWindows:
    """The samples of one LLMDeployment's engines. Times are the caller's clock, in seconds."""

    _samples: dict[str, deque[tuple[float, EngineStats]]] = field(default_factory=dict)
    _last_request: float | None = None
    """When the fleet last had a request, as far as anything seen until now says so: silence moves it nowhere."""

    def note_request(self, when: float) -> None:
        """The fleet had a request at this time."""
        self._last_request = when if self._last_request is None else max(when, self._last_request)

    def observe(self, pod: str, stats: EngineStats, now: float, keep_seconds: float = LONGEST_WINDOW_SECONDS) -> None:
        """Take in a sample; those older than ``keep_seconds`` are forgotten, but for the one a window begins at."""
        samples = self._samples.setdefault(pod, deque())
        if (idle := _idle_seconds(stats, samples[-1][1] if samples else None)) is not None:
            self.note_request(now - idle)
        samples.append((now, stats))
        while len(samples) > 2 and samples[1][0] < now - keep_seconds:
            samples.popleft()

    def latest(self, pod: str) -> EngineStats | None:
        samples = self._samples.get(pod)
        return samples[-1][1] if samples else None

    def last_time(self, pod: str, default: float) -> float:
        """When the latest sample of a pod was taken."""
        samples = self._samples.get(pod)
        return samples[-1][0] if samples else default

    def keep(self, pods: Collection[str]) -> None:
        """Forget the engines that are not in ``pods``."""
        for pod in self._samples.keys() - set(pods):
            del self._samples[pod]

    def summarize(
        self,
        *,
        window_seconds: float,
        now: float,
        ready_pods: Collection[str],
        pending_pods: int = 0,
        held: int = 0,
        current: bool = True,
        flow_seconds: float | None = None,
        startup_seconds: float | None = None,
        refused: tuple[str, ...] = (),
    ) -> Signals:
        """Numbers of the serving replicas ``ready_pods`` over the last ``window_seconds``, and of the traffic over the
        last ``flow_seconds`` (as long, if None).

        What draining replicas still do counts as events of the window, not as capacity.
        """
        if held:
            self.note_request(now)
        recent = {pod: sample for pod in ready_pods if (sample := self._fresh(pod, now)) is not None}
        stats = list(recent.values())
        begin = now - window_seconds
        flow_seconds = window_seconds if flow_seconds is None else flow_seconds
        flow = now - flow_seconds
        generated = self._increase(lambda s: s.generation_tokens_total, begin)
        return Signals(
            ready=len(ready_pods),
            pending=pending_pods,
            fresh=bool(ready_pods) and len(recent) == len(ready_pods),
            stale_pods=tuple(sorted(set(ready_pods) - recent.keys())),
            refused=refused,
            window_seconds=window_seconds,
            running=sum(s.running for s in stats),
            waiting=sum(s.waiting for s in stats),
            held=held,
            current=current,
            last_request=self._last_request,
            above_cap=sum(max(s.running - s.live_cap, 0) for s in stats),
            peak_running=max((s.running for s in self._within(recent, flow)), default=0),
            capacity=sum(s.live_cap for s in stats),
            lowest_cap=min((s.live_cap for s in stats), default=0),
            highest_cap=max((s.live_cap for s in stats), default=0),
            engine_capacity=min((s.capacity for s in stats), default=0),
            token_capacity=min((s.max_batched_tokens for s in stats), default=0),
            token_budget=min((s.token_budget for s in stats), default=0),
            kv_blocks=min((s.kv_blocks for s in stats), default=0),
            kv_block_size=min((s.kv_block_size for s in stats), default=0),
            max_model_len=min((s.max_model_len for s in stats), default=0),
            default_parameters=DefaultParameters.common(s.default_parameters for s in stats),
            kv_usage=sum(s.kv_usage for s in stats) / len(stats) if stats else 0.0,
            kv_peak_usage=max((s.kv_usage for s in self._within(recent, flow)), default=0.0),
            replicas=tuple(self._load(pod, flow) for pod in recent),
            flow_seconds=flow_seconds,
            arrived=self._increase(lambda s: s.requests_total, flow),
            departed=self._increase(lambda s: s.requests_finished_total, flow),
            generated=self._increase(lambda s: s.generation_tokens_total, flow),
            first_token_seconds=_mean(
                self._increase(lambda s: s.first_token_seconds_total, flow),
                self._increase(lambda s: s.first_token_count_total, flow),
            ),
            startup_seconds=startup_seconds,
            finished=self._increase(lambda s: s.requests_finished_total, begin),
            preempted=self._increase(lambda s: s.requests_preempted_total, begin),
            computed_tokens=self._increase(lambda s: s.computed_tokens_total, begin),
            recomputed_tokens=self._increase(lambda s: s.recomputed_tokens_total, begin),
            generation_tokens_per_second=generated / self._span(begin),
        )

    def _load(self, pod: str, begin: float) -> ReplicaLoad:
        inside = [stats for when, stats in self._samples[pod] if when > begin] or [self._samples[pod][-1][1]]
        return ReplicaLoad(
            running=sum(s.running for s in inside) / len(inside),
            kv_usage=sum(s.kv_usage for s in inside) / len(inside),
            inter_token_seconds=_mean(
                self._increase(lambda s: s.inter_token_seconds_total, begin, (pod,)),
                self._increase(lambda s: s.inter_token_count_total, begin, (pod,)),
            ),
            step_sums=self._step_sums(pod, begin),
        )

    def _step_sums(self, pod: str, begin: float) -> tuple[float, ...]:
        """As :meth:`_increase`, of each sum."""
        total: tuple[float, ...] = ()
        previous: EngineStats | None = None
        for when, stats in self._samples[pod]:
            sums = stats.step_sums
            if previous is not None and when > begin and sums:
                before = previous.step_sums if previous.instance == stats.instance else ()
                grown = map(sub, sums, before) if before else iter(sums)
                total = tuple(map(add, total, grown)) if total else tuple(grown)
            previous = stats
        return total

    def _fresh(self, pod: str, now: float) -> EngineStats | None:
        samples = self._samples.get(pod)
        return samples[-1][1] if samples and now - samples[-1][0] <= STALE_SECONDS else None

    def _within(self, pods: Iterable[str], begin: float) -> Iterable[EngineStats]:
        return (stats for pod in pods for when, stats in self._samples[pod] if when > begin)

    def _increase(self, counter: Callable[[EngineStats], N], begin: float, pods: Collection[str] | None = None) -> N:
        """How much a counter grew after ``begin`` over all engines, or over ``pods``; a sample taken at ``begin`` is
        where it starts.
        """
        total: N = 0
        for samples in self._samples.values() if pods is None else [self._samples[pod] for pod in pods]:
            previous: EngineStats | None = None
            for when, stats in samples:
                if previous is not None and when > begin:
                    same = previous.instance == stats.instance
                    total += max(0, counter(stats) - (counter(previous) if same else 0))
                previous = stats
        return total

    def _span(self, begin: float) -> float:
        """Seconds between the sample before the window and the last one: what the increase is over."""
        first, last = float("inf"), float("-inf")
        for samples in self._samples.values():
            times = [when for when, _ in samples]
            inside = [i for i, when in enumerate(times) if when > begin]
            if inside:
                first = min(first, times[max(0, inside[0] - 1)])
                last = max(last, times[-1])
        return max(last - first, 1.0)


def _idle_seconds(stats: EngineStats, last: EngineStats | None) -> float | None:
    """Since an engine's last request; None where it is not known to have had one since its ``last`` sample."""
    if stats.running or stats.waiting:
        return 0.0
    if stats.idle_seconds is not None or last is None:
        return stats.idle_seconds
    # Of an engine that does not tell, its counters do: a request came or ended between the two samples.
    before = last if last.instance == stats.instance else None
    grown = stats.requests_total > (before.requests_total if before else 0)
    ended = stats.requests_finished_total > (before.requests_finished_total if before else 0)
    return 0.0 if grown or ended else None


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
