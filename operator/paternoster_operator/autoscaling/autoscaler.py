"""The autoscaler of one fleet: from samples of the engines to replicas, live cap and token budget.

Pure and without a clock, so that the operator, ``paternoster up`` and a simulation decide alike.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.concurrency import (
    PERIOD_SECONDS,
    decide_cap,
    longest_window,
    observation_window,
)
from paternoster_operator.autoscaling.decision import Decision, LawState
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replicas import decide_replicas, seconds_idle
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.token_budget import decide_budget
from paternoster_operator.autoscaling.trend import note
from paternoster_operator.autoscaling.windows import SignalWindows


@dataclass(frozen=True, slots=True)
class Samples:
    """What can be seen of a fleet at one moment."""

    engines: Mapping[str, EngineStats]
    """By pod: what those that answered told, as far as it is believed."""
    serving: Collection[str]
    """Pods that take requests."""
    pending: Collection[str] = ()
    """Pods on their way."""
    others: Collection[str] = ()
    """Pods that are there besides, such as those that finish what they have and go."""
    held: int = 0
    """Requests that gateways hold for want of a replica."""
    idle_seconds: float | None = None
    """Since the last request, as gateways tell it; None where none of them had one."""
    startup_seconds: float | None = None
    """Mean time from a pod's creation until it serves; None while no start was seen."""
    replicas: int | None = None
    """Replicas that are asked for, where that may differ from what was decided last; None where it does not."""
    cap: int | None = None
    """Live cap to begin with where no engine tells one."""
    gateway_requests: Mapping[str, int] = field(default_factory=dict)
    """Requests for the fleet that have come to each gateway process, by its instance."""
    refused_reports: tuple[str, ...] = ()
    """What engines told and was not believed."""


@dataclass(slots=True)
class Autoscaler:
    """One fleet's memory and its decisions. ``observe`` what is there, then ``decide``; times are the caller's clock.

    Each look goes as follows.

    1. ``observe`` keeps the samples and sums counters over two windows: the traffic of the last ``windowSeconds`` (30),
       and the preemptions since the last change of the cap, at most four windows back. What full queues refused has
       arrived, too.
    2. ``decide`` learns, once in 5 s: KV memory a sequence, tokens an answer, and what a step costs by what is in it,
       from which the time between tokens follows as a line in the number of sequences; old observations fade.
    3. The token budget, every 5 s: the largest step that, with what decodes beside a prompt, keeps the limit between
       tokens.
    4. The cap, every 5 s: preemptions that make tokens late cut it to what fills the KV pool, or with the objective
       PreemptionRate their rate does to what memory has room for; a queue, few preemptions and room raise it.
    5. Replicas, every 15 s: the sequences that the traffic keeps busy over those that one replica sustains, within
       windows, steps, bounds and budget.

    An example with the defaults: limits of 2 s and 50 ms, ``max_num_seqs`` 256, two replicas. Each ran 60 sequences
    on average, on 30 % of its KV blocks, 25 ms between tokens; earlier it ran 20 with 15 ms. So a sequence takes 0.5
    % of the blocks, and 90 % of them hold 180 sequences; the line is 10 ms + 0.25 ms x n, which reaches 45 ms (nine
    tenths of the limit) at 140 sequences. A replica sustains min(256, 180, 140) = 140. Requests come at 40 a second
    with answers of 100 tokens: 40 x 100 x 0.045 s = 180 sequences, each as slow as on a full replica. One square root
    of that is kept spare, u = min(0.80, 13.4 / 14.4) = 0.80, hence ceil(180 / (0.80 x 140)) = 2: nothing changes. At
    60 requests a second it is ceil(270 / 112) = 3, and a third is added at once. Were 8 of 200 finished requests
    preempted, 4 % of them and above the target of 2 %, and tokens 60 ms apart though a step takes 25 ms, with 60
    sequences on 95 % of the blocks, each cap would be cut to the 64 that fill them, and raised again while that stays
    calm and requests wait.
    """

    policy: ScalingPolicy
    """May be replaced between two looks, by what holds then."""
    state: LawState | None = None
    """Memory; None before the first decision."""
    signals: Signals = field(default_factory=Signals)
    """What was seen last."""
    _windows: SignalWindows = field(default_factory=SignalWindows)
    _found: Samples | None = None

    def observe(self, samples: Samples, now: float) -> Signals:
        """Take one look in."""
        cap, windows = self.policy.cap, self._windows
        for pod, stats in samples.engines.items():
            windows.observe(pod, stats, now, longest_window(cap))
        windows.observe_gateways(samples.gateway_requests, now)
        if samples.idle_seconds is not None:
            windows.note_request(now - samples.idle_seconds)
        windows.keep({*samples.serving, *samples.pending, *samples.others})
        self._found = samples
        self.signals = windows.summarize(
            window_seconds=longest_window(cap) if self.state is None else observation_window(cap, self.state, now),
            flow_seconds=cap.window_seconds,
            now=now,
            ready_pods=samples.serving,
            pending_pods=len(samples.pending),
            held=samples.held,
            current=samples.idle_seconds is not None or samples.engines.keys() >= set(samples.serving),
            startup_seconds=samples.startup_seconds,
            refused_reports=samples.refused_reports,
        )
        return self.signals

    def decide(self, now: float) -> Decision:
        """What to have from now on; at first what there is, so that a restarted operator changes nothing by itself."""
        found, state = self._found, self.state
        replicas = None if found is None else found.replicas
        if state is None:
            cap = self.signals.lowest_cap or (None if found is None else found.cap)
            budget = self.signals.token_budget or None
            state = first_state(self.policy, now, replicas=replicas, cap=cap, token_budget=budget)
        elif replicas is not None and state.replicas != replicas:
            # What was ordered was not done, so it is neither on its way nor to be done late; what was seen counts.
            state = replace(state, replicas=replicas, ordered=None, changes=())
        decision = decide(self.policy, self.signals, state, now)
        self.state = decision.state
        return decision

    def seconds_until_sleep(self, now: float) -> float | None:
        """Until the fleet goes to zero where no request comes; None where that time has come, or will not."""
        loop, state = self.policy.replicas, self.state
        if loop is None or state is None or state.replicas == 0 or self.signals.demand > 0:
            return None
        idle = seconds_idle(self.signals, state, now)
        return None if loop.idle_seconds is None or idle >= loop.idle_seconds else loop.idle_seconds - idle

    def latest(self, pod: str) -> EngineStats | None:
        """The last sample of a pod."""
        return self._windows.latest(pod)

    def age_of_latest(self, pod: str, now: float) -> float:
        """Seconds since the last sample of a pod; 0 without one."""
        return now - self._windows.last_time(pod, now)


def first_state(
    policy: ScalingPolicy,
    now: float,
    *,
    replicas: int | None = None,
    cap: int | None = None,
    token_budget: int | None = None,
) -> LawState:
    """Memory to begin with: what already runs, where that is known; else the spec's start."""
    start = policy.fixed_replicas if policy.replicas is None else policy.replicas.lowest
    return LawState(
        replicas=start if replicas is None else replicas,
        cap=policy.cap.initial if cap is None else cap,
        since=now,
        token_budget=token_budget,
    )


def decide(policy: ScalingPolicy, signals: Signals, state: LawState, now: float) -> Decision:
    """What to do now. Budget and cap come first: replicas are judged by what will hold."""
    state = _learn(signals, state, now)
    token_budget, state = decide_budget(policy, signals, state, now)
    concurrency, state = decide_cap(policy, signals, state, now)
    replicas, state = decide_replicas(policy, signals, state, now)
    return Decision(replicas, concurrency, state, token_budget)


def _learn(signals: Signals, state: LawState, now: float) -> LawState:
    """Take a look's numbers in, once a period: what is looked at twice is not twice as true."""
    elapsed = PERIOD_SECONDS if state.looked is None else now - state.looked
    if not signals.fresh or 0 <= elapsed < PERIOD_SECONDS:
        return state
    return replace(
        state,
        looked=now,
        model=state.model.observe(signals, elapsed),
        arrivals=note(state.arrivals, now, signals.arrival_rate),
    )
