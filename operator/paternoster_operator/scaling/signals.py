"""What the law sees: one set of numbers over a window, from samples of every engine.

Counters are summed from sample to sample, so a restarted engine (another ``instance``) adds what it counted since its
start instead of a negative jump.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from paternoster_contract.stats import EngineStats

STALE_SECONDS = 15.0
"""Age of an engine's last sample beyond which it says nothing of now: three missed scrapes."""
LONGEST_WINDOW_SECONDS = 600.0


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
    window_seconds: float = 0.0

    running: int = 0
    waiting: int = 0
    held: int = 0
    """Requests that the gateway holds for want of a replica."""
    peak_running: int = 0
    """Most sequences one engine ran at once in the window."""
    capacity: int = 0
    """Sum of the live caps of the serving replicas."""
    lowest_cap: int = 0
    highest_cap: int = 0
    engine_capacity: int = 0
    """Smallest max_num_seqs of the serving replicas: no live cap can be above it."""
    kv_usage: float = 0.0
    """Mean share of KV blocks in use, 0..1."""
    kv_peak_usage: float = 0.0
    """Highest share of KV blocks one engine had in use in the window."""

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
    def preemption_rate(self) -> float:
        """Preempted over finished requests. Where more were preempted than finished, the rate is 1."""
        return self.preempted / max(self.finished, self.preempted, 1)


@dataclass(slots=True)
class SignalWindows:
    """The samples of one LLMDeployment's engines. Times are the caller's clock, in seconds."""

    _samples: dict[str, deque[tuple[float, EngineStats]]] = field(default_factory=dict)

    def observe(self, pod: str, stats: EngineStats, now: float, keep_seconds: float = LONGEST_WINDOW_SECONDS) -> None:
        """Take in a sample; those older than ``keep_seconds`` are forgotten, but for the one a window begins at."""
        samples = self._samples.setdefault(pod, deque())
        samples.append((now, stats))
        while len(samples) > 2 and samples[1][0] < now - keep_seconds:
            samples.popleft()

    def latest(self, pod: str) -> EngineStats | None:
        samples = self._samples.get(pod)
        return samples[-1][1] if samples else None

    def keep(self, pods: Collection[str]) -> None:
        """Forget the engines that are not in ``pods``."""
        for pod in self._samples.keys() - set(pods):
            del self._samples[pod]

    def summarize(
        self, *, window_seconds: float, now: float, ready_pods: Collection[str], pending_pods: int = 0, held: int = 0
    ) -> Signals:
        """Numbers of the serving replicas ``ready_pods`` over the last ``window_seconds``.

        What draining replicas still do counts as events of the window, not as capacity.
        """
        recent = {pod: sample for pod in ready_pods if (sample := self._fresh(pod, now)) is not None}
        stats = list(recent.values())
        begin = now - window_seconds
        generated = self._increase(lambda s: s.generation_tokens_total, begin)
        return Signals(
            ready=len(ready_pods),
            pending=pending_pods,
            fresh=bool(ready_pods) and len(recent) == len(ready_pods),
            stale_pods=tuple(sorted(set(ready_pods) - recent.keys())),
            window_seconds=window_seconds,
            running=sum(s.running for s in stats),
            waiting=sum(s.waiting for s in stats),
            held=held,
            peak_running=max((s.running for s in self._within(recent, begin)), default=0),
            capacity=sum(s.live_cap for s in stats),
            lowest_cap=min((s.live_cap for s in stats), default=0),
            highest_cap=max((s.live_cap for s in stats), default=0),
            engine_capacity=min((s.capacity for s in stats), default=0),
            kv_usage=sum(s.kv_usage for s in stats) / len(stats) if stats else 0.0,
            kv_peak_usage=max((s.kv_usage for s in self._within(recent, begin)), default=0.0),
            finished=self._increase(lambda s: s.requests_finished_total, begin),
            preempted=self._increase(lambda s: s.requests_preempted_total, begin),
            computed_tokens=self._increase(lambda s: s.computed_tokens_total, begin),
            recomputed_tokens=self._increase(lambda s: s.recomputed_tokens_total, begin),
            generation_tokens_per_second=generated / self._span(begin),
        )

    def _fresh(self, pod: str, now: float) -> EngineStats | None:
        samples = self._samples.get(pod)
        return samples[-1][1] if samples and now - samples[-1][0] <= STALE_SECONDS else None

    def _within(self, pods: Iterable[str], begin: float) -> Iterable[EngineStats]:
        return (stats for pod in pods for when, stats in self._samples[pod] if when > begin)

    def _increase(self, counter: Callable[[EngineStats], int], begin: float) -> int:
        """How much a counter grew after ``begin`` over all engines; a sample taken at ``begin`` is where it starts."""
        total = 0
        for samples in self._samples.values():
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
