"""The windows of the law: samples of engines and gateways, and what their counters grew by.

A counter's growth between two samples is spread evenly over the time between them, and an engine's window ends with its
last sample. So a gap in the samples is neither a pause of the traffic nor, when they come again, a burst. A restarted
engine (another ``instance``), or a counter that fell within one process, adds what was counted since then instead of a
negative jump.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import add, attrgetter, sub
from typing import Generic, TypeVar

from paternoster_contract.stats import STEP_SUMS, EngineStats, Unreported, begins_anew, find_growth
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning

_COUNTERS = (
    "requests_total",
    "requests_rejected_full_total",
    "requests_finished_total",
    "requests_preempted_total",
    "generation_tokens_total",
    "computed_tokens_total",
    "recomputed_tokens_total",
    "inter_token_seconds_total",
    "inter_token_count_total",
    "queue_count_total",
)
(
    _ADMITTED, _REJECTED, _FINISHED, _PREEMPTED, _GENERATED, _COMPUTED, _RECOMPUTED,
    _BETWEEN_SECONDS, _BETWEEN_COUNT, _STARTED,
) = range(len(_COUNTERS))  # fmt: skip
_read_counters = attrgetter(*_COUNTERS)
_STEPS = slice(len(_COUNTERS), len(_COUNTERS) + STEP_SUMS)
_NO_SUMS = (0.0,) * STEP_SUMS

Totals = tuple[float, ...]
"""Counters of an engine, then the sums over steps; of a gateway the requests that came to it."""
_NOTHING: Totals = (0.0,) * _STEPS.stop
Sample = TypeVar("Sample")


@dataclass(slots=True)
class _Track(Generic[Sample]):
    """The samples of one engine or gateway, oldest first."""

    times: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    totals: list[Totals] = field(default_factory=list)
    """What was counted until each sample, by all processes together."""
    _instance: str = ""
    _counters: Totals = ()
    """Counters of the last sample."""
    _offset: Totals = _NOTHING
    """Counts from before the present counters began at 0."""

    def add(self, now: float, instance: str, counters: Totals, sample: Sample, keep_seconds: float) -> None:
        """Append a sample; those older than ``keep_seconds`` are forgotten, but for the one a window begins at."""
        totals = counters
        if self.times:
            last = self.totals[-1]
            if now < self.times[-1]:
                # The clock was set back: the samples go with it.
                back = self.times[-1] - now + (self.times[-1] - self.times[-2] if len(self.times) > 1 else 0.0)
                self.times = [when - back for when in self.times]
            if self._instance != instance:
                self._offset = last
            elif any(map(begins_anew, counters, self._counters)):
                self._offset = self._begin_anew(counters)
            if self._offset is not _NOTHING:
                totals = tuple(map(add, counters, self._offset))
            totals = tuple(map(max, totals, last))
        self._instance, self._counters = instance, counters
        self.times.append(now)
        self.samples.append(sample)
        self.totals.append(totals)
        old = bisect_right(self.times, now - keep_seconds, hi=len(self.times) - 1) - 1
        if old > 0:
            del self.times[:old], self.samples[:old], self.totals[:old]

    def _begin_anew(self, counters: Totals) -> Totals:
        """The offsets where some of ``counters`` begin anew: of these, and of all sums over steps where one does."""
        fallen = list(map(begins_anew, counters, self._counters))
        fallen[_STEPS] = [any(fallen[_STEPS])] * len(fallen[_STEPS])
        return tuple(
            last if fell else offset for fell, last, offset in zip(fallen, self.totals[-1], self._offset, strict=True)
        )

    def growth_since(self, begin: float) -> Totals:
        """What the counters grew by from ``begin`` to the last sample."""
        after = bisect_right(self.times, begin)
        last = self.totals[-1]
        if after == len(self.times):
            return (0.0,) * len(last)
        before = self.totals[max(after - 1, 0)]
        if after == 0 or self.times[after - 1] == begin:
            return tuple(map(sub, last, before))
        share = (begin - self.times[after - 1]) / (self.times[after] - self.times[after - 1])
        return tuple(z - a - share * (b - a) for z, a, b in zip(last, before, self.totals[after], strict=True))

    def samples_since(self, begin: float) -> list[Sample]:
        """Samples after ``begin``; the last one in any case."""
        return self.samples[min(bisect_right(self.times, begin), len(self.times) - 1) :]

    def is_fresh(self, now: float, stale_seconds: float) -> bool:
        return now - self.times[-1] <= stale_seconds

    def window_begin(self, now: float, seconds: float, stale_seconds: float) -> float:
        """A window ends with the last sample, unless that is stale."""
        return (self.times[-1] if self.is_fresh(now, stale_seconds) else now) - seconds


@dataclass(slots=True)
class SignalWindows:
    """The samples of one LLMDeployment's engines and gateways. Times are the caller's clock, in seconds."""

    tuning: Tuning = DEFAULT_TUNING
    _tracks: dict[str, _Track[EngineStats]] = field(default_factory=dict)
    _gateways: dict[str, _Track[None]] = field(default_factory=dict)
    _last_request: float | None = None
    """When the fleet last had a request, as far as anything reported until now: silence moves it nowhere."""
    _observation: Observation = field(default_factory=lambda: Observation(0.0, 0, (), (), (), {}))

    def observe(self, observation: Observation) -> None:
        """Append what was observed; samples older than the window, and pods that are gone, are forgotten."""
        now, keep_seconds, self._observation = observation.now, self.tuning.window_seconds, observation
        for pod, stats in observation.engines.items():
            if (idle := _idle_seconds(stats, self.latest_sample(pod))) is not None:
                self._record_request(now - idle)
            counters = _read_counters(stats) + (stats.step_sums or _NO_SUMS)
            self._tracks.setdefault(pod, _Track()).add(now, stats.instance, counters, stats, keep_seconds)
        for instance, count in observation.gateway_requests.items():
            track = self._gateways.setdefault(instance, _Track())
            # It falls where the gateway's answer has no room for a model, and comes back with the model.
            most = max(count, *track.totals[-1]) if track.totals else count
            track.add(now, instance, (most,), None, keep_seconds)
        for instance in [i for i, track in self._gateways.items() if now - track.times[-1] > keep_seconds]:
            del self._gateways[instance]
        if observation.idle_seconds is not None:
            self._record_request(now - observation.idle_seconds)
        if observation.held:
            self._record_request(now)
        for pod in self._tracks.keys() - {*observation.serving, *observation.pending, *observation.draining}:
            del self._tracks[pod]

    def latest_sample(self, pod: str) -> EngineStats | None:
        """The last sample of a pod."""
        return self._tracks[pod].samples[-1] if pod in self._tracks else None

    def seconds_since_latest(self, pod: str, now: float) -> float:
        """Age of the last sample of a pod; 0 without one."""
        return now - self._tracks[pod].times[-1] if pod in self._tracks else 0.0

    def has_recent_sample(self, pod: str, now: float) -> bool:
        """Whether a pod's engine answered lately."""
        return pod in self._tracks and self._tracks[pod].is_fresh(now, self.tuning.stale_seconds)

    def summarize_signals(self) -> Signals:
        """Signals of the serving replicas over the window.

        What draining replicas still do counts as events of the window, not as capacity.
        """
        seen, now, stale = self._observation, self._observation.now, self.tuning.stale_seconds
        tracks, window_seconds = self._tracks, self.tuning.window_seconds
        recent = {pod: tracks[pod] for pod in seen.serving if pod in tracks and tracks[pod].is_fresh(now, stale)}
        stats = [track.samples[-1] for track in recent.values()]
        begins = {pod: track.window_begin(now, window_seconds, stale) for pod, track in tracks.items()}
        growths = {pod: track.growth_since(begins[pod]) for pod, track in tracks.items()}
        grown = _sum_growths(growths.values())
        loads = tuple(_replica_load(track.samples_since(begins[pod]), growths[pod]) for pod, track in recent.items())
        gateways = self._gateways.values()
        came = _sum_growths(track.growth_since(track.window_begin(now, window_seconds, stale)) for track in gateways)[0]
        unreported = tuple(sorted({name for s in stats for name in s.unreported}))
        # A gateway tries several engines before it refuses a request, and each of them counts it.
        refused = max(came - grown[_ADMITTED], 0) if came else grown[_REJECTED]
        refused = min(refused, grown[_REJECTED])
        running = sum(s.running for s in stats)
        stale_pods = tuple(sorted(set(seen.serving) - recent.keys()))
        return Signals(
            ready=len(seen.serving),
            pending=len(seen.pending),
            fresh=bool(seen.serving) and len(recent) == len(seen.serving),
            stale_pods=stale_pods,
            failed_calls=tuple(f"{pod}: {seen.failed_calls[pod]}" for pod in stale_pods if pod in seen.failed_calls),
            window_seconds=window_seconds,
            refused_reports=seen.refused_reports,
            reports=tuple(stats),
            unreported=unreported,
            running=running,
            waiting=sum(s.waiting for s in stats),
            held=seen.held,
            current=seen.idle_seconds is not None or seen.engines.keys() >= set(seen.serving),
            last_request=self._last_request,
            above_cap=sum(max(s.running - s.live_cap, 0) for s in stats),
            peak_running=max((load.peak_running for load in loads), default=0),
            lowest_cap=min((s.live_cap for s in stats), default=0),
            token_capacity=min((s.max_batched_tokens for s in stats), default=0),
            token_budget=min((s.token_budget for s in stats), default=0),
            max_queue_milliseconds=min(
                (s.max_queue_milliseconds for s in stats if s.max_queue_milliseconds), default=0
            ),
            kv_usage=sum(s.kv_usage for s in stats) / len(stats) if stats else 0.0,
            kv_peak_usage=max((load.kv_peak_usage for load in loads), default=0.0),
            replicas=loads,
            arrived=round(came if Unreported.REQUESTS in unreported else grown[_ADMITTED] + refused),
            refused=round(refused),
            # What began has ended or runs: no engine reports more of them than it has places.
            started=round(min(grown[_STARTED], grown[_FINISHED] + running)),
            generated=round(grown[_GENERATED]),
            startup_seconds=seen.startup_seconds,
            finished=round(grown[_FINISHED]),
            preempted=round(grown[_PREEMPTED]),
            computed_tokens=round(grown[_COMPUTED]),
            recomputed_tokens=round(grown[_RECOMPUTED]),
        )

    def _record_request(self, when: float) -> None:
        """The fleet had a request at this time."""
        self._last_request = when if self._last_request is None else max(when, self._last_request)


def _replica_load(samples: Collection[EngineStats], growth: Totals) -> ReplicaLoad:
    steps, running, kv_usage = growth[_STEPS], [s.running for s in samples], [s.kv_usage for s in samples]
    held = [usage / count for usage, count in zip(kv_usage, running, strict=True) if count]
    return ReplicaLoad(
        running=sum(running) / len(samples),
        kv_usage=sum(kv_usage) / len(samples),
        inter_token_seconds=_mean_of(growth[_BETWEEN_SECONDS], growth[_BETWEEN_COUNT]),
        kv_per_sequence=sum(held) / len(held) if held else 0.0,
        step_sums=steps if steps[0] > 0 else (),
        peak_running=max(running),
        kv_peak_usage=max(kv_usage),
        busy_share=sum(map(bool, running)) / len(samples),
    )


def _sum_growths(growths: Iterable[Totals]) -> Totals:
    """Over all engines."""
    return tuple(map(sum, zip(*growths, strict=True))) or _NOTHING


def _idle_seconds(stats: EngineStats, last: EngineStats | None) -> float | None:
    """Since an engine's last request; None where none is seen since its ``last`` sample."""
    if stats.running or stats.waiting:
        return 0.0
    if stats.idle_seconds is not None or last is None:
        return stats.idle_seconds
    # Where an engine reports none, as vLLM, its counters show whether a request came or ended between two samples.
    same = last.instance == stats.instance
    grown = find_growth(stats.requests_total, last.requests_total if same else 0)
    ended = find_growth(stats.requests_finished_total, last.requests_finished_total if same else 0)
    return 0.0 if grown or ended else None


def _mean_of(total: float, count: float) -> float | None:
    return total / count if count > 0 else None
