"""A fleet under traffic, in virtual time: events in order, and nothing touched that has none."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from paternoster_contract.stats import EngineStats
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.prefix_routing import PrefixRouting
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.report.startup import StartupTimes
from paternoster_simulator.cost import TICKS_PER_SECOND, to_seconds, to_ticks
from paternoster_simulator.events import EventQueue, EventRank
from paternoster_simulator.failures import ClockJumps, EngineRestarts, Fault, MetricsBlackout, ReplicaDies, SlowStartups
from paternoster_simulator.fleet import Hooks, Phase, Pod, SimulatedFleet
from paternoster_simulator.outcome.outcome import OutcomeSeries, SimulationOutcome
from paternoster_simulator.policies.policy import Action, Policy
from paternoster_simulator.profile import Profile
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.replica.reports import report_stats
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.virtual_gateway import VirtualGateway
from paternoster_traces.trace import TraceRow

PRE_STOP_SECONDS = 2.0
"""A pod's time between its deletion and its engine's: part of what a drain may take."""
LAST_ANSWER_SECONDS = 600.0
"""After the duration, time for what still runs to be answered."""
ALLOCATIONS_PER_COLLECTION = 100_000
"""Objects more than were freed, until Python looks for cycles; its own default is 700."""

Progress = Callable[[float], None]
"""Called now and then with the virtual second."""


def simulate_fleet(
    profile: Profile,
    requests: Iterable[TraceRow],
    policy: Policy,
    *,
    start_replicas: int,
    duration: float,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    settings: FleetSettings | None = None,
    progress: Progress | None = None,
    prefixes: PrefixRouting | None = None,
) -> SimulationOutcome:
    """Run a fleet of ``start_replicas`` serving replicas under ``requests`` that arrive before ``duration`` seconds.

    ``requests`` are in order of arrival and may be a generator. The simulation ends with the last answer, at the
    earliest at ``duration``, at the latest 600 s after it. The same arguments give the same outcome, whatever the
    machine. ``prefixes``: how prompts choose replicas, in its first state.
    Raises ``ValueError`` for settings that an engine would refuse.
    """
    if duration <= 0:
        raise ValueError(f"duration is {duration}: must be above 0")
    if start_replicas < 0:
        raise ValueError(f"start_replicas is {start_replicas}: must be at least 0")
    simulation = Simulation(profile, policy, start_replicas, duration, seed, settings or FleetSettings(), prefixes)
    return simulation.run(requests, faults, progress)


class Simulation:
    """The state of one run."""

    def __init__(
        self,
        profile: Profile,
        policy: Policy,
        start_replicas: int,
        duration: float,
        seed: int,
        settings: FleetSettings,
        prefixes: PrefixRouting | None = None,
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._policy = policy
        self._duration = duration
        self._events = EventQueue()
        self._rng = Random(seed)
        self._fleet = SimulatedFleet(
            config=settings.scheduler_config(profile),
            cost=profile.cost,
            startup=profile.startup,
            drain_timeout=settings.drain_timeout_seconds + PRE_STOP_SECONDS,
            events=self._events,
            rng=Random(self._rng.random()),
            hooks=Hooks(ready=self._on_ready, leaving=self._on_leaving, broken=self._on_broken),
            fast_forward=settings.fast_forward,
        )
        self._gateway = VirtualGateway(
            self._events,
            prefix_cache=settings.prefix_cache,
            prefix_routing=settings.prefix_cache and settings.prefix_routing,
            published_caches=settings.published_caches and profile.engine == "Paternoster",
            max_held=settings.max_held_requests,
            hold_timeout=settings.hold_timeout_seconds,
            wake=self._schedule_step,
            idle=self._fleet.remove_idle,
            hand_over=settings.hand_over,
            balancer=Balancer(prefixes=prefixes),
        )
        self._series = OutcomeSeries()
        self._decisions: list[Mapping[str, Any]] = []
        self._scale_events = self._cap_events = self._budget_events = 0
        self._cap: int | None = None
        self._token_budget: int | None = None
        self._clock_offset = 0.0
        self._dark: Callable[[str], bool] | None = None
        self._startup = StartupTimes()
        self._before = (0, 0, 0, 0, 0.0)
        self._wanted = start_replicas
        """Replicas that the policy asked for last; the Deployment has more while some are drained."""
        self._fleet.start(start_replicas, 0)

    def run(
        self, requests: Iterable[TraceRow], faults: Sequence[Fault], progress: Progress | None
    ) -> SimulationOutcome:
        for fault in faults:
            self._events.add(to_ticks(fault.at), EventRank.LIFE, self._make_injection(fault))
        self._events.add(0, EventRank.OBSERVE, self._observe)
        arrivals = iter(requests)
        self._next_arrival(arrivals)
        end, last = to_ticks(self._duration), to_ticks(self._duration + LAST_ANSWER_SECONDS)
        now, reported = 0, 0
        with _rare_collections():
            while self._events:
                time = self._events.next_time
                if time > end and (self._gateway.unanswered == 0 or time > last):
                    now = max(now, end if self._gateway.unanswered == 0 else last)
                    break
                now = self._events.run_next()
                if progress is not None and now - reported >= TICKS_PER_SECOND:
                    reported = now
                    progress(to_seconds(now))
        return self._build_outcome(now)

    def _next_arrival(self, arrivals: Iterator[TraceRow]) -> None:
        """Only the next request is in the queue: a trace may be longer than memory."""
        row = next(arrivals, None)
        if row is None or row.arrival_s >= self._duration:
            return

        def on_arrival(now: int, row: TraceRow = row) -> None:
            self._gateway.on_arrival(row, now)
            self._next_arrival(arrivals)

        self._events.add(to_ticks(row.arrival_s), EventRank.ARRIVAL, on_arrival)

    def _schedule_step(self, pod: Pod, engine: SimulatedReplica) -> None:
        """Be there when the work that is under way ends."""
        if engine.end is None:
            return

        def step(now: int) -> None:
            # The end may have moved since, or the engine may be gone.
            if engine.end != now or pod.engine is not engine:
                return
            done = engine.advance(now)
            self._schedule_step(pod, engine)
            if engine.prompted:
                self._gateway.on_first_tokens(pod, engine.prompted, now)
            if done:
                self._gateway.on_finished(pod, list(done), now)
            if engine.hands_over and pod.engine is engine:
                self._gateway.move_requests(pod, now)

        self._events.add(engine.end, EventRank.STEP, step)

    def _on_ready(self, pod: Pod, now: int) -> None:
        self._gateway.on_pod_ready(pod, now)

    def _on_leaving(self, pod: Pod, now: int) -> None:
        self._gateway.on_pod_leaving(pod, now)

    def _on_broken(self, pod: Pod, requests: list[Any], now: int) -> None:
        self._gateway.on_engine_end(pod, requests, now)

    def _observe(self, now: int) -> None:
        self._events.add(now + to_ticks(self._policy.period_seconds), EventRank.OBSERVE, self._observe)
        fleet, gateway = self._fleet, self._gateway
        stats = {
            pod.name: report_stats(
                self._profile.engine, pod.serving.build_stats(now, draining=pod.phase is Phase.DRAINING)
            )
            for pod in fleet.iterate_pods(Phase.READY, Phase.DRAINED, Phase.DRAINING)
        }
        for startup_seconds in fleet.startups:
            self._startup.add_start(startup_seconds)
        fleet.startups.clear()
        dark = self._dark
        observation = Observation(
            now=to_seconds(now) + self._clock_offset,
            replicas=self._wanted,
            serving=tuple(pod.name for pod in fleet.iterate_pods(Phase.READY)),
            pending=tuple(pod.name for pod in fleet.pending),
            draining=tuple(pod.name for pod in fleet.iterate_pods(Phase.DRAINED, Phase.DRAINING)),
            engines=stats if dark is None else {name: s for name, s in stats.items() if not dark(name)},
            held=gateway.held,
            in_flight=gateway.in_flight,
            gateway_requests={"gateway": gateway.requests},
            startup_seconds=self._startup.average,
        )
        self._record_sample(observation, stats, now)
        self._apply_action(self._policy.decide(observation), observation, now)

    def _apply_action(self, action: Action, observation: Observation, now: int) -> None:
        if action.replicas < 0:
            raise ValueError(f"the policy asks for {action.replicas} replicas: must be at least 0")
        self._decisions += [
            {"time": to_seconds(now), **decision} for decision in action.decisions if decision.get("action") != "Hold"
        ]
        if action.cap is not None:
            self._cap_events += self._cap is not None and action.cap != self._cap
            self._cap = action.cap
            for pod in self._fleet.iterate_pods(Phase.READY, Phase.DRAINED):
                if pod.name in observation.engines:
                    engine = pod.serving
                    before = engine.end
                    engine.set_cap(action.cap, now)
                    if engine.end != before:
                        self._schedule_step(pod, engine)
        if action.token_budget is not None:
            self._budget_events += self._token_budget is not None and action.token_budget != self._token_budget
            self._token_budget = action.token_budget
            for pod in self._fleet.iterate_pods(Phase.READY, Phase.DRAINED):
                if pod.name in observation.engines:
                    pod.serving.set_token_budget(action.token_budget)
        if action.max_queue_milliseconds is not None:
            for pod in self._fleet.iterate_pods(Phase.READY, Phase.DRAINED):
                stats = observation.engines.get(pod.name)
                # As the operator does: an engine that reports no such limit has none to set.
                if stats is not None and stats.max_queue_milliseconds is not None:
                    pod.serving.scheduler.queue_wait.max_milliseconds = action.max_queue_milliseconds
        if action.replicas != self._wanted:
            self._scale_events += 1
            self._wanted = action.replicas
        if action.longest_drain_seconds is None:
            self._fleet.scale(action.replicas, now)
        else:
            requests = {pod: stats.running + stats.waiting for pod, stats in observation.engines.items()}
            self._fleet.resize_to(action.replicas, requests, action.longest_drain_seconds, now)

    def _record_sample(self, observation: Observation, stats: Mapping[str, EngineStats], now: int) -> None:
        serving = [stats[name] for name in observation.serving]
        totals = self._fleet.sum_totals()
        tokens, finished, preempted, requests, then = self._before
        self._before = (
            totals.generation_tokens, totals.finished, totals.preempted, self._gateway.requests, to_seconds(now),
        )  # fmt: skip
        elapsed = to_seconds(now) - then or float("inf")
        done, hit = totals.finished - finished, totals.preempted - preempted
        series = self._series
        series.time.append(to_seconds(now))
        series.wanted.append(self._wanted)
        series.ready.append(len(observation.serving))
        series.pending.append(len(observation.pending))
        series.cap.append(sum(s.live_cap for s in serving) / max(len(serving), 1))
        series.running.append(sum(s.running for s in stats.values()))
        series.waiting.append(sum(s.waiting for s in stats.values()))
        series.held.append(observation.held)
        series.kv_usage.append(sum(s.kv_usage for s in serving) / max(len(serving), 1))
        series.preemption_rate.append(hit / max(done, hit, 1))
        series.tokens_per_second.append((totals.generation_tokens - tokens) / elapsed)
        series.requests_per_second.append((self._gateway.requests - requests) / elapsed)

    def _make_injection(self, fault: Fault) -> Callable[[int], None]:
        return lambda now: self._inject_fault(fault, now)

    def _inject_fault(self, fault: Fault, now: int) -> None:
        match fault:
            case ReplicaDies():
                for pod in self._choose_victims(fault.count):
                    self._fleet.kill(pod, now)
            case EngineRestarts():
                for pod in self._choose_victims(fault.count):
                    self._fleet.restart(pod, now)
            case MetricsBlackout():
                pods = sorted(self._fleet.pods)
                chosen = set(self._rng.sample(pods, round(fault.share * len(pods))))
                self._dark = (lambda name: True) if fault.share == 1 else chosen.__contains__
                self._run_after(fault.seconds, now, lambda now: setattr(self, "_dark", None))
            case ClockJumps():
                self._clock_offset += fault.seconds
            case SlowStartups():
                self._fleet.slowness = fault.factor
                self._run_after(fault.seconds, now, lambda now: setattr(self._fleet, "slowness", 1.0))

    def _run_after(self, wait: float, now: int, action: Callable[[int], None]) -> None:
        self._events.add(now + to_ticks(wait), EventRank.LIFE, action)

    def _choose_victims(self, count: int) -> list[Pod]:
        ready = list(self._fleet.iterate_pods(Phase.READY))
        return self._rng.sample(ready, min(count, len(ready)))

    def _build_outcome(self, now: int) -> SimulationOutcome:
        for pod in self._fleet.iterate_pods(Phase.READY, Phase.DRAINED, Phase.DRAINING):
            pod.serving.observe(now)
        self._gateway.close()
        return SimulationOutcome(
            profile=self._profile,
            objective=self._settings.objective or self._profile.objective,
            records=self._gateway.records,
            totals=self._fleet.sum_totals(),
            seconds=to_seconds(now),
            replica_hours=self._fleet.replica_seconds_until(now) / 3600,
            scale_events=self._scale_events,
            cap_events=self._cap_events,
            budget_events=self._budget_events,
            series=self._series,
            decisions=self._decisions,
        )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for reference cycles rarely: a simulation makes many objects, and next to no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
