"""The pods of one fleet: their start, phase by phase, their drain and their end, as a Deployment's would go."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_operator.autoscaling.scale_down import ReplicaPod, plan_scale_down
from paternoster_simulator.cost import StepCost, to_seconds, to_ticks
from paternoster_simulator.events import EventQueue, EventRank
from paternoster_simulator.profile import Startup
from paternoster_simulator.replica.replica import SimulatedReplica


class Phase(IntEnum):
    """A pod's life, in order."""

    SCHEDULING = 0
    PULLING = 1
    LOADING = 2
    WARMING = 3
    READY = 4
    DRAINED = 5
    """Part of the Deployment, without new requests."""
    DRAINING = 6
    GONE = 7


@dataclass(slots=True, eq=False)
class Pod:
    """One replica's pod."""

    name: str
    number: int
    created: int
    """When it came to be, in picoseconds: from here on its GPUs are paid for."""
    phase: Phase = Phase.SCHEDULING
    engine: SimulatedReplica | None = None
    """Its engine process, once it serves."""
    starts: int = 0
    """Engine processes it has had."""
    drained: int | None = None
    """Since when it is drained; None where it is not."""

    @property
    def serving(self) -> SimulatedReplica:
        assert self.engine is not None, f"{self.name} has no engine in phase {self.phase.name}"
        return self.engine


@dataclass(slots=True)
class Totals:
    """What engines did that are no more."""

    finished: int = 0
    """Without those that went on at another engine."""
    preempted: int = 0
    preemptions: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0

    def add(self, engine: SimulatedReplica) -> None:
        counters = engine.scheduler.counters
        self.finished += sum(counters.finished.values()) - counters.finished[FinishReason.ABORT]
        self.preempted += counters.requests_preempted
        self.preemptions += counters.preemptions
        self.computed_tokens += counters.computed_tokens
        self.recomputed_tokens += counters.recomputed_tokens
        self.generation_tokens += counters.generation_tokens
        self.prompt_tokens += counters.prompt_tokens
        self.cached_prompt_tokens += counters.cached_prompt_tokens


@dataclass(slots=True)
class Hooks:
    """Receives the events of a fleet."""

    ready: Callable[[Pod, int], None]
    """A pod serves from now on."""
    leaving: Callable[[Pod, int], None]
    """A pod takes no more requests."""
    broken: Callable[[Pod, list[Request], int], None]
    """A pod's engine ended with these requests in it."""


@dataclass(slots=True)
class SimulatedFleet:
    """All pods of one Deployment; deterministic by ``rng``."""

    config: SchedulerConfig
    cost: StepCost
    startup: Startup
    drain_timeout: float
    events: EventQueue
    rng: Random
    hooks: Hooks
    fast_forward: bool = True
    wanted: int = 0
    """Replicas of the Deployment."""
    slowness: float = 1.0
    """Factor on the start of pods made now."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pods that are not gone."""
    gone: Totals = field(default_factory=Totals)
    replica_seconds: float = 0.0
    """Sum over pods that are gone, from creation to end."""
    counts: Counter[Phase] = field(default_factory=Counter)
    startups: list[float] = field(default_factory=list)
    """Seconds from creation to serving of the pods that began to serve, until somebody takes them."""
    _made: int = 0

    def iterate_pods(self, *phases: Phase) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.phase in phases)

    @property
    def pending(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.phase < Phase.READY)

    def start(self, replicas: int, now: int) -> None:
        """The fleet as it is found at the start: all pods serve."""
        self.wanted = replicas
        for _ in range(replicas):
            self._serve(self._make_pod(now), now)

    def resize_to(self, target: int, requests: Mapping[str, int], longest_seconds: float, now: int) -> None:
        """Move towards ``target`` pods as the operator does: what is surplus is drained before it ends.

        ``requests`` are those of engines that reported, by pod; ``longest_seconds`` is the longest drain.
        """
        pods = [
            ReplicaPod(
                pod.name,
                pod.phase >= Phase.READY,
                requests.get(pod.name),
                None if pod.drained is None else to_seconds(now - pod.drained),
            )
            for pod in self.pods.values()
            if pod.phase < Phase.DRAINING
        ]
        plan = plan_scale_down(pods, target, longest_seconds)
        for pod in list(self.iterate_pods(Phase.READY, Phase.DRAINED)):
            if pod.drained is None and pod.name in plan.drained:
                pod.drained = now
                self._enter_phase(pod, Phase.DRAINED)
                self.hooks.leaving(pod, now)
            elif pod.drained is not None and pod.name not in plan.drained:
                pod.drained = None
                self._enter_phase(pod, Phase.READY)
                self.hooks.ready(pod, now)
        self.scale(max(target, min(plan.replicas, self.wanted)), now, plan.ending)

    def scale(self, wanted: int, now: int, ending: Collection[str] = ()) -> None:
        """Change the number of pods: those that do not serve go first, then ``ending``, then those with least to do."""
        self.wanted = wanted
        alive = [pod for pod in self.pods.values() if pod.phase < Phase.DRAINING]
        for _ in range(wanted - len(alive)):
            self._start(self._make_pod(now), now)
        surplus = len(alive) - wanted
        if surplus > 0:
            alive.sort(
                key=lambda pod: (
                    min(pod.phase, Phase.READY),
                    pod.name not in ending,
                    pod.engine.in_flight if pod.engine else 0,
                    -pod.number,
                )
            )
            for pod in alive[:surplus]:
                self._delete(pod, now)

    def kill(self, pod: Pod, now: int) -> None:
        """The pod is gone at once, with what it had; the Deployment makes another."""
        self._end_pod(pod, now)
        self.scale(self.wanted, now)

    def restart(self, pod: Pod, now: int) -> None:
        """The engine process ends and another one loads in the same pod."""
        self._enter_phase(pod, Phase.LOADING)
        self._stop_engine(pod, now)
        self._wait(pod, now)

    def remove_idle(self, pod: Pod, now: int) -> None:
        """Remove a draining pod that has nothing left."""
        if pod.phase is Phase.DRAINING:
            self._end_pod(pod, now)

    def replica_seconds_until(self, now: int) -> float:
        return self.replica_seconds + sum(to_seconds(now - pod.created) for pod in self.pods.values())

    def sum_totals(self) -> Totals:
        """What all engines did so far; those that run are to be observed first."""
        sums = Totals(**{name: getattr(self.gone, name) for name in Totals.__slots__})
        for pod in self.pods.values():
            if pod.engine is not None:
                sums.add(pod.engine)
        return sums

    def _make_pod(self, now: int) -> Pod:
        self._made += 1
        pod = Pod(f"pod-{self._made:05d}", self._made, now)
        self.pods[pod.name] = pod
        self.counts[pod.phase] += 1
        return pod

    def _start(self, pod: Pod, now: int) -> None:
        self._enter_phase(pod, Phase.SCHEDULING)
        self._wait(pod, now)

    def _wait(self, pod: Pod, now: int) -> None:
        """Spend the phase that the pod is in, and go on to the next."""
        jitter = self.startup.jitter
        length = self.startup.phases[pod.phase] * self.slowness * (1 + jitter * self.rng.uniform(-1, 1))
        phase, starts = pod.phase, pod.starts

        def end_phase(now: int) -> None:
            if pod.phase is not phase or pod.starts != starts:
                return
            if phase is Phase.WARMING:
                if pod.starts == 0:
                    self.startups.append(to_seconds(now - pod.created))
                self._serve(pod, now)
            else:
                self._enter_phase(pod, Phase(phase + 1))
                self._wait(pod, now)

        self.events.add(now + to_ticks(length), EventRank.LIFE, end_phase)

    def _serve(self, pod: Pod, now: int) -> None:
        pod.starts += 1
        instance = f"{pod.name}/{pod.starts}"
        pod.engine = SimulatedReplica(
            pod.name, self.config, self.cost, instance=instance, started_at=now, fast_forward=self.fast_forward
        )
        self._enter_phase(pod, Phase.READY)
        self.hooks.ready(pod, now)

    def _delete(self, pod: Pod, now: int) -> None:
        if pod.engine is None or pod.engine.in_flight == 0:
            self._end_pod(pod, now)
            return
        self._enter_phase(pod, Phase.DRAINING)
        self.hooks.leaving(pod, now)
        self.events.add(now + to_ticks(self.drain_timeout), EventRank.LIFE, lambda now: self.remove_idle(pod, now))

    def _end_pod(self, pod: Pod, now: int) -> None:
        self._enter_phase(pod, Phase.GONE)
        del self.pods[pod.name]
        self.replica_seconds += to_seconds(now - pod.created)
        self._stop_engine(pod, now)

    def _stop_engine(self, pod: Pod, now: int) -> None:
        engine, pod.engine = pod.engine, None
        if engine is None:
            return
        engine.observe(now)
        engine.end = None
        self.gone.add(engine)
        self.hooks.leaving(pod, now)
        self.hooks.broken(pod, engine.list_unfinished(), now)

    def _enter_phase(self, pod: Pod, phase: Phase) -> None:
        self.counts[pod.phase] -= 1
        self.counts[phase] += 1
        pod.phase = phase
