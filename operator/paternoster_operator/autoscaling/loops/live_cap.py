"""The live cap, from the time between tokens and from preemptions.

It is cut where steps are too long without any prompt in them, and where preemptions cost too much. With the objective
Goodput their cost is the share of the engines' time in which tokens are computed again; where that is little, slots
that stay empty cost more. With PreemptionRate it is the share of requests that are preempted, at whatever price.

The loop remembers a trial for each number of sequences that ran. It searches between the most sequences that cost
little enough and the fewest that cost too much, and stays at the former once none is between them. Trials fade with
time, and count only for sequences that hold about as much memory as then.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import ConcurrencyObjective
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_after, is_recent
from paternoster_operator.autoscaling.decision import LIVE_CAP, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.engine_limit import EngineLimitLoop, LimitBounds
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.replica_model import decode_room
from paternoster_operator.autoscaling.signals import Signals


@dataclass(frozen=True, slots=True)
class CapTrial:
    """Preempted and ended requests, and their cost, while a number of sequences ran."""

    sequences: int
    """The most at once on one replica."""
    kv_share: float
    """Share of a replica's KV blocks that one sequence held."""
    preempted: float = 0.0
    ended: float = 0.0
    step_seconds: float = 0.0
    """Seconds of steps of all replicas."""
    repeated_seconds: float = 0.0
    """Part of :attr:`step_seconds` in which tokens were computed again."""

    @property
    def doubt(self) -> float:
        """Standard deviation of what preemptions cost, as a share of it: they are rare events."""
        return 1 / math.sqrt(self.preempted) if self.preempted else 1.0

    def add_window(self, signals: Signals, token_seconds: float) -> Self:
        """The trial with one more window; ``token_seconds``: what computing a token again takes."""
        return replace(
            self,
            preempted=self.preempted + signals.preempted,
            ended=self.ended + max(signals.finished, signals.preempted),
            step_seconds=self.step_seconds + sum(load.step_seconds for load in signals.replicas),
            repeated_seconds=self.repeated_seconds + signals.recomputed_tokens * token_seconds,
        )

    def fade_counts(self, factor: float) -> Self:
        """The trial with all counts times ``factor``."""
        return replace(
            self,
            preempted=self.preempted * factor,
            ended=self.ended * factor,
            step_seconds=self.step_seconds * factor,
            repeated_seconds=self.repeated_seconds * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCapState(LoopState):
    """State of the cap loop."""

    trials: tuple[CapTrial, ...] = ()
    """One for each number of sequences."""
    counted: float | None = None
    """Time at which the last window was counted."""
    kv_share: float = 0.0
    """Share of a replica's KV blocks that one sequence holds: the most since a window in which as many ended as ran."""

    def count_window(self, signals: Signals, models: Models, now: float) -> Self:
        """The state with one more window in the trial of the sequences that ran in it."""
        tuning, running, share = models.replica.tuning, signals.peak_running, self.kv_share
        if held := [load.kv_per_sequence for load in signals.replicas if load.kv_per_sequence]:
            seen = sum(held) / len(held)
            # Sequences grow: that they hold more counts at once, that they hold less once they were seen to their end.
            share = seen if signals.finished >= running * signals.ready else max(share, seen)
        factor = 0.5 ** (signals.window_seconds / tuning.half_life_seconds)
        trials = {trial.sequences: trial.fade_counts(factor) for trial in self.trials if trial.ended >= 1}
        if running and signals.finished + signals.preempted:
            trial = trials.get(running)
            if trial is None or not (
                tuning.is_like_kv_share(share, trial.kv_share) and tuning.is_like_kv_share(trial.kv_share, share)
            ):
                trial = CapTrial(running, share)
            trials[running] = trial.add_window(signals, models.replica.steps.prompt_token_seconds or 0.0)
        return replace(self, trials=tuple(trials.values()), counted=now, kv_share=share)


@dataclass(frozen=True, slots=True)
class LiveCapLoop(EngineLimitLoop):
    """Moves the live cap of every engine."""

    name: str = LIVE_CAP
    moves: str = "live cap"
    unit: str = " sequences"

    def adopt_running(self, observation: Observation, signals: Signals, state: LoopState | None) -> LoopState:
        running = signals.lowest_cap or observation.live_cap or self.policy.initial_cap
        return LiveCapState(target=running) if state is None else state

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        policy = self.policy
        bounds = LimitBounds(policy.cap_mode, policy.concurrency.min, policy.highest_cap, policy.held_cap)
        return self.steer_within(bounds, signals, models, states[self.name], now)

    def record_signals(self, signals: Signals, models: Models, state: LoopState, now: float) -> LoopState:
        """The state with one more window, once the whole of it is after the last change and after the last one counted.

        A cut preempts nothing, so it counts from when what ran above it has ended.
        """
        assert isinstance(state, LiveCapState)
        if signals.above_cap and state.changed is not None:
            return replace(state, changed=now)
        if not signals.fresh or Unreported.PREEMPTIONS in signals.unreported:
            return state
        if not self._counts_requests and models.replica.steps.prompt_token_seconds is None:
            return state
        # What ran above a cap that was cut ended some time before the look that found it gone.
        starts = ((state.changed, signals.window_seconds + self.period), (state.counted, signals.window_seconds))
        if any(start is not None and is_recent(now, start, seconds) for start, seconds in starts):
            return state
        return state.count_window(signals, models, now)

    def find_target(
        self, signals: Signals, models: Models, state: LoopState, bounds: LimitBounds, now: float
    ) -> Outcome:
        cap = state.target
        if Unreported.PREEMPTIONS in signals.unreported:
            return Outcome(cap, Reason.NOT_REPORTED, "held, as the engines do not report preemptions")
        if signals.above_cap > 0:
            above = f"held until the {signals.above_cap} sequences above the cap have ended"
            return Outcome(cap, Reason.STABILIZING, above)
        # A window that begins before a change shows what was before it, too.
        cooldown = signals.window_seconds + self.period
        if (held := hold_after("changed", state.changed, cooldown, cap, now)) is not None:
            return held
        rooms = [(float(bounds.highest), Reason.AT_CAPACITY, f"{bounds.highest} sequences are the most allowed")]
        if (room := decode_room(self.policy, models.replica)) is not None:
            rooms.append(
                (
                    room,
                    Reason.LATENCY_ABOVE_TARGET,
                    f"more than {room:.0f} sequences would exceed the limit between tokens",
                )
            )
            if room < cap and (slow := self._explain_late_tokens(signals)) is not None:
                target = max(room, cap * (1 - self.tuning.max_cap_cut_share))
                return self._cut_cap(cap, target, Reason.LATENCY_ABOVE_TARGET, slow)
        assert isinstance(state, LiveCapState)
        failed = min(self._list_failed(state), key=lambda trial: trial.sequences, default=None)
        if failed is not None and failed.sequences <= cap:
            return self._cut_below(failed, signals, state)
        trial = next((each for each in state.trials if each.sequences == min(cap, signals.peak_running)), None)
        if trial is not None and not self._keeps_target(trial):
            return Outcome(cap, Reason.WITHIN_TOLERANCE, self._explain_trial(trial))
        if signals.waiting == 0:
            return Outcome(cap, Reason.WITHIN_TOLERANCE, "no queue")
        if self._counts_requests and (trial is None or trial.ended < trial.sequences):
            ran = f"the {signals.peak_running} sequences that run may grow: fewer requests than that have ended"
            return Outcome(cap, Reason.INSUFFICIENT_DATA, ran)
        if failed is not None:
            rooms.append((failed.sequences - 1, Reason.PREEMPTION_ABOVE_TARGET, self._explain_trial(failed)))
        if self._counts_requests and signals.kv_peak_usage > 0:
            # Memory grows with what runs: as many as would bring it to the high-water mark.
            room = self.tuning.planned_kv_usage / signals.kv_peak_usage * signals.peak_running
            used = f"{signals.peak_running} sequences used {signals.kv_peak_usage:.0%} of the KV pool"
            rooms.append((room, Reason.KV_HIGH_WATERMARK, used))
        room, bound, explanation = min(rooms, key=lambda each: each[0])
        if room < cap + 1:
            return Outcome(cap, bound, f"{signals.waiting} waiting; {explanation}")
        # Half of the way, where the way is long: after a change of the traffic steps alone take minutes.
        step = 1 if failed is not None else self.tuning.cap_step
        target = min(max(cap + step, (cap + int(room)) // 2), int(room))
        limited = (Reason.AT_CAPACITY,) if target == bounds.highest else ()
        return Outcome(target, Reason.HEADROOM_AVAILABLE, f"{signals.waiting} waiting; {explanation}", limited)

    @property
    def _counts_requests(self) -> bool:
        """Whether the objective counts preempted requests, and not the time that they cost."""
        return self.policy.concurrency.objective is ConcurrencyObjective.PREEMPTION_RATE

    def _measure_cost(self, trial: CapTrial) -> float:
        """Cost of preemptions, as a share of what the objective counts."""
        if self._counts_requests:
            return trial.preempted / max(trial.ended, 1)
        return trial.repeated_seconds / trial.step_seconds if trial.step_seconds > 0 else 0.0

    @property
    def _target(self) -> float:
        """The most that this may be."""
        if self._counts_requests:
            return self.policy.concurrency.preemption_target_per_thousand / 1000
        return self.tuning.max_repeated_share

    def _list_failed(self, state: LiveCapState) -> Iterator[CapTrial]:
        """Trials that cost too much by more than chance, of sequences that held no more memory than those of now."""
        for trial in state.trials:
            alike = self.tuning.is_like_kv_share(trial.kv_share, state.kv_share)
            enough = trial.ended >= self.tuning.min_ended_requests
            if alike and enough and self._measure_cost(trial) * (1 - trial.doubt) > self._target:
                yield trial

    def _keeps_target(self, trial: CapTrial) -> bool:
        """It costs little enough, by more than chance."""
        return self._measure_cost(trial) * (1 + trial.doubt) <= self._target

    def _cut_below(self, failed: CapTrial, signals: Signals, state: LiveCapState) -> Outcome:
        """Cut to the most sequences that kept the target, to those that fill memory, or by the cost as a share.

        By the cost where as many ran as the cap allows; where fewer did, memory was full. With PreemptionRate memory
        has to hold what is computed again, too: any preemption counts there.
        """
        held_sequences = (
            trial.sequences
            for trial in state.trials
            if trial.sequences < min(failed.sequences, trial.ended + 1)
            and self._keeps_target(trial)
            and self.tuning.is_like_kv_share(state.kv_share, trial.kv_share)
        )
        fill = min(1 / state.kv_share if state.kv_share > 0 else math.inf, failed.sequences - 1)
        # What an earlier cut preempted may be computed again only now.
        again = min(signals.recomputed_share, failed.preempted / failed.ended) if self._counts_requests else 0.0
        by_cost = failed.sequences * (1 - self._measure_cost(failed)) if failed.sequences == state.target else 0.0
        room = max(fill * (1 - again), by_cost, *held_sequences)
        return self._cut_cap(state.target, room, Reason.PREEMPTION_ABOVE_TARGET, self._explain_trial(failed))

    def _explain_trial(self, trial: CapTrial) -> str:
        counted = f"{trial.preempted:.0f} of {trial.ended:.0f} requests preempted with {trial.sequences} sequences"
        cost, target = self._measure_cost(trial), f"target {self._target:.1%}"
        if self._counts_requests:
            return f"{counted} = {cost:.1%}, {target}"
        return f"{counted}, {cost:.1%} of the time to compute tokens again, {target}"

    def _cut_cap(self, cap: int, target: float, reason: Reason, explanation: str) -> Outcome:
        lowest = self.policy.concurrency.min
        if cap <= lowest:
            floor = f"{explanation}; {lowest} sequences are the fewest allowed"
            held = Reason.AT_FLOOR if reason is Reason.PREEMPTION_ABOVE_TARGET else reason
            return Outcome(cap, held, floor, (Reason.AT_FLOOR,))
        return Outcome(max(lowest, min(cap - 1, int(target))), reason, explanation)

    def _explain_late_tokens(self, signals: Signals) -> str | None:
        """An explanation if tokens come more slowly than the limit allows, else None."""
        limit, mean = self.policy.itl_seconds, signals.inter_token_seconds
        if limit is None or mean is None or mean <= limit:
            return None
        return f"{mean * 1000:.0f} ms between tokens > {limit * 1000:.0f} ms"

    def describe_inputs(self, signals: Signals, models: Models) -> dict[str, str]:
        describe = signals.describe_number
        return {
            "serving": str(signals.ready),
            "preempted": describe(str(signals.preempted), Unreported.PREEMPTIONS),
            "finished": describe(str(signals.finished), Unreported.REQUESTS),
            "preemptionTarget": f"{self.policy.concurrency.preemption_target_per_thousand / 1000:.1%}",
            "recomputedTokens": describe(f"{signals.recomputed_share:.1%}", Unreported.RECOMPUTED_TOKENS),
            "waiting": describe(str(signals.waiting)),
            "held": str(signals.held),
            "peakRunning": describe(f"{signals.peak_running} sequences"),
            "kvPeakUsage": describe(f"{signals.kv_peak_usage:.0%}", Unreported.KV_BLOCKS),
            "windowSeconds": f"{signals.window_seconds:.0f}",
        }
