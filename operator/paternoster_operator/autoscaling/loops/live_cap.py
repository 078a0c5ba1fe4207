"""The live cap, from the time between tokens and from preemptions.

It is cut where steps are too long without any prompt in them. Preemptions cut it with the objective PreemptionRate
alone, until memory has room at its fullest moment: such a cut never makes first tokens come sooner, and in all
simulations the tokens that are computed twice cost less than slots that stay empty.
"""

import math
from dataclasses import dataclass, replace

from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import ConcurrencyObjective
from paternoster_operator.autoscaling.control_loop import LoopState, Outcome, hold_after
from paternoster_operator.autoscaling.decision import LIVE_CAP, Reason
from paternoster_operator.autoscaling.loops.engine_limit import EngineLimitLoop, LimitBounds
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.replica_model import ReplicaModel, decode_room, kv_room
from paternoster_operator.autoscaling.signals import Signals


@dataclass(frozen=True, slots=True)
class LiveCapLoop(EngineLimitLoop):
    """Moves the live cap of every engine."""

    name: str = LIVE_CAP
    moves: str = "live cap"
    unit: str = " sequences"

    def first_target(self, observation: Observation, signals: Signals) -> int:
        return signals.lowest_cap or observation.live_cap or self.policy.initial_cap

    def limit_bounds(self, signals: Signals) -> LimitBounds:
        policy = self.policy
        return LimitBounds(policy.cap_mode, policy.concurrency.min, policy.highest_cap, policy.held_cap)

    def settle_change(self, signals: Signals, state: LoopState, now: float) -> LoopState:
        """A cut preempts nothing, so it counts from when what ran above it has ended."""
        return replace(state, changed=now) if signals.above_cap and state.changed is not None else state

    def find_target(
        self, signals: Signals, models: Models, state: LoopState, bounds: LimitBounds, now: float
    ) -> Outcome:
        loop, cap = self.policy.concurrency, state.target
        if Unreported.PREEMPTIONS in signals.unreported:
            return Outcome(cap, Reason.NOT_REPORTED, "held, as the engines do not report preemptions")
        if signals.above_cap > 0:
            above = f"held until the {signals.above_cap} sequences above the cap have ended"
            return Outcome(cap, Reason.STABILIZING, above)
        # A window that begins before a change shows what was before it, too.
        cooldown = max(loop.cooldown_seconds, signals.window_seconds)
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
                return self._cut_cap(
                    cap, max(room, cap * (1 - loop.decrease_percent / 100)), Reason.LATENCY_ABOVE_TARGET, slow
                )
        if loop.objective is ConcurrencyObjective.PREEMPTION_RATE:
            if (found := self._judge_preemptions(signals, models.replica, cap)) is not None:
                return found
            if signals.kv_peak_usage > 0:
                # Memory grows with what runs: as many as would bring it to the high-water mark.
                room = loop.kv_high_watermark_percent / 100 / signals.kv_peak_usage * signals.peak_running
                used = f"{signals.peak_running} sequences used {signals.kv_peak_usage:.0%} of the KV pool"
                rooms.append((room, Reason.KV_HIGH_WATERMARK, used))
        if signals.waiting == 0:
            return Outcome(cap, Reason.WITHIN_TOLERANCE, "no queue")
        room, bound, explanation = min(rooms, key=lambda each: each[0])
        if room < cap + 1:
            return Outcome(cap, bound, f"{signals.waiting} waiting; {explanation}")
        # Half of the way, where the way is long: after a change of the traffic steps alone take minutes.
        target = min(max(cap + loop.increase_step, (cap + int(room)) // 2), int(room))
        limited = (Reason.AT_CAPACITY,) if target == bounds.highest else ()
        return Outcome(target, Reason.HEADROOM_AVAILABLE, f"{signals.waiting} waiting; {explanation}", limited)

    def _judge_preemptions(self, signals: Signals, model: ReplicaModel, cap: int) -> Outcome | None:
        """What preemptions ask for; None where they are few enough for the cap to be raised."""
        loop, rate = self.policy.concurrency, signals.preemption_rate
        target = loop.preemption_target_per_thousand / 1000
        ended = max(signals.finished, signals.preempted)
        explanation = (
            f"{signals.preempted} of {ended} requests preempted in {signals.window_seconds:.0f} s = {rate:.1%}"
        )
        # One standard deviation of a count of rare events: a single preemption among few requests may be chance.
        doubt = math.sqrt(signals.preempted)
        if rate > target:
            if ended < loop.min_finished_requests or signals.preempted - doubt <= target * ended:
                return Outcome(cap, Reason.INSUFFICIENT_DATA, f"{explanation}; too few to be more than chance")
            return self._cut_cap(
                cap,
                self._room_after_preemptions(signals, model, cap),
                Reason.PREEMPTION_ABOVE_TARGET,
                f"{explanation} > {target:.1%}",
            )
        if signals.preempted + doubt > target / 2 * ended:
            return Outcome(cap, Reason.WITHIN_TOLERANCE, f"{explanation}, target {target:.1%}")
        return None

    def _room_after_preemptions(self, signals: Signals, model: ReplicaModel, cap: int) -> float:
        """Sequences that memory has room for; no fewer than ``decreasePercent`` below those that ran.

        From what really ran: a cap far above it could be cut many times before anything changed.
        """
        loop = self.policy.concurrency
        ran = min(cap, max(signals.peak_running, loop.min))
        # A preemption finds the pool full, so this share would have filled it to the high-water mark; and no less is
        # cut than a raise adds, or raises would outrun cuts.
        room = min(ran * (loop.kv_high_watermark_percent / 100), ran - loop.increase_step)
        if (learnt := kv_room(self.policy, model)) is not None:
            room = min(room, learnt)
        return max(room, ran * (1 - loop.decrease_percent / 100))

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
        unreported = Unreported.RECOMPUTED_TOKENS in signals.unreported
        return {
            "serving": str(signals.ready),
            "preempted": str(signals.preempted),
            "finished": str(signals.finished),
            "preemptionTarget": f"{self.policy.concurrency.preemption_target_per_thousand / 1000:.1%}",
            "recomputedTokens": "not reported" if unreported else f"{signals.recomputed_share:.1%}",
            "waiting": str(signals.waiting),
            "held": str(signals.held),
            "peakRunning": f"{signals.peak_running} sequences",
            "kvPeakUsage": f"{signals.kv_peak_usage:.0%}",
            "windowSeconds": f"{signals.window_seconds:.0f}",
        }
