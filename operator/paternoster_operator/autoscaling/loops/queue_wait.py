"""The loop of the queue: how long requests may wait in an engine, once no replica can be added.

While replicas can be added, requests wait for them. At the ceiling, which is the maximum or the GPU budget, a queue
that grows makes every request late and none in time. So engines then refuse what would wait for longer than a share of
the limit for first tokens, by the pace at which they admit requests, and what they admit is answered in time.
"""

from dataclasses import dataclass

from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_without_numbers
from paternoster_operator.autoscaling.decision import QUEUE_WAIT, REPLICAS, LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True)
class QueueWaitLoop:
    """Moves the longest wait in the queue of every engine, in milliseconds; 0 is no limit."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = QUEUE_WAIT

    @property
    def period(self) -> float:
        return self.tuning.engine_period_seconds

    def adopt_running(self, observation: Observation, signals: Signals, state: LoopState | None) -> LoopState:
        """At first what the engines have."""
        return LoopState(target=signals.max_queue_milliseconds) if state is None else state

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        """The decision, None while there is no limit, or none was due."""
        state = states[self.name]
        found = self._decide(signals, state.target, states[REPLICAS].target)
        if found.target == state.target == 0 or state.is_early(now, self.period):
            return None, state
        loop = self.policy.replicas
        inputs = {
            "serving": signals.ready,
            "waiting": signals.waiting,
            "held": signals.held,
            "refused": signals.refused,
        }
        decision = found.decide(
            self.name,
            "queue wait",
            state.target,
            unit=" ms",
            inputs={name: str(value) for name, value in inputs.items()},
            applied=loop is None or loop.mode is AutoscalingMode.AUTO,
        )
        return decision, state.after_decision(decision, now, self.period)

    def _decide(self, signals: Signals, current: int, replicas: int) -> Outcome:
        loop, ttft = self.policy.replicas, self.policy.ttft_seconds
        if loop is None or ttft is None:
            return Outcome(0, Reason.WITHIN_TOLERANCE, "no limit for first tokens, or replicas that are not scaled")
        if signals.reports and all(report.max_queue_milliseconds is None for report in signals.reports):
            return Outcome(0, Reason.NOT_REPORTED, "the engines have no such limit")
        if signals.ready > 0 and (silence := hold_without_numbers(signals, current)) is not None:
            return silence
        if replicas < loop.highest:
            return Outcome(0, Reason.WITHIN_TOLERANCE, f"{replicas} replicas, and {loop.highest} are allowed")
        if signals.ready < replicas:
            return Outcome(current, Reason.PENDING_REPLICAS, f"{signals.ready} of {replicas} replicas serve")
        target = round(self.tuning.queue_wait_share * ttft * 1000)
        return Outcome(target, loop.highest_reason, f"{replicas} replicas are the most allowed")
