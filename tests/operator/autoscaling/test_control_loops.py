"""What another control loop costs: a file and its test. Here one that moves the length of a queue."""

from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from tests.operator.autoscaling.law_inputs import policy

from paternoster_operator.api.types.status import DecisionRecord
from paternoster_operator.autoscaling.autoscaler import LOOPS, Autoscaler
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates
from paternoster_operator.autoscaling.decision import LIVE_CAP, QUEUE_WAIT, REPLICAS, TOKEN_BUDGET, LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning
from paternoster_operator.cluster.port import Key
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.report.events import decision_event
from paternoster_operator.report.history import History
from paternoster_operator.terminal.explain import explain_status

NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class QueueLimitLoop:
    """Halves the queue at each evaluation."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = "QueueLimit"
    period: float = 10.0

    def adopt_running(self, observation: Observation, signals: Signals, state: LoopState | None) -> LoopState:
        return LoopState(target=1024) if state is None else state

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        state = states[self.name]
        if state.is_early(now, self.period):
            return None, state
        half = state.target // 2
        message = f"queue limit {state.target}->{half}: halved"
        made = LoopDecision(self.name, state.target, half, half, Reason.LATENCY_ABOVE_TARGET, message)
        return made, state.after_decision(made, now, self.period)


def fleet() -> Autoscaler:
    autoscaler = Autoscaler(policy(), make_loops=(*LOOPS, QueueLimitLoop))
    autoscaler.observe(Observation(0.0, 2, (), (), (), {}))
    return autoscaler


def test_another_loop_decides_beside_the_others_at_its_own_period() -> None:
    autoscaler = fleet()
    targets = [autoscaler.decide(now).targets["QueueLimit"] for now in (0.0, 5.0, 10.0, 15.0, 20.0)]
    assert targets == [512, 512, 256, 256, 128]
    assert autoscaler.states.targets.keys() == {REPLICAS, LIVE_CAP, TOKEN_BUDGET, QUEUE_WAIT, "QueueLimit"}


def test_another_loop_is_in_history_events_metrics_and_explain() -> None:
    decision, metrics = fleet().decide(0.0), OperatorMetrics()
    history, new = History().add(decision, NOW)
    recorded = {made.loop: made for made in new}
    made = recorded["QueueLimit"]
    assert decision_event(made).reason == "QueueLimitLowered"
    for record in history.records:
        DecisionRecord.model_validate(record)
    metrics.observe(Key("lifts", "ride"), Signals(), decision, list(recorded.values()), 2)
    exported = generate_latest(metrics.registry).decode()
    assert 'paternoster_operator_desired_queue_limit{name="ride",namespace="lifts"} 512.0' in exported
    assert 'paternoster_operator_recommended_live_cap{name="ride",namespace="lifts"} 48.0' in exported
    status: dict[str, Any] = {"conditions": [], "decisions": history.records}
    ready = {"type": "Ready", "status": "True", "reason": "MinimumReplicasAvailable"}
    lines = explain_status({"metadata": {"name": "ride"}, "status": {**status, "conditions": [ready]}}, last=9)
    assert any("QueueLimit 1024 -> 512" in line for line in lines)


def test_decisions_that_were_not_due_are_kept_from_earlier_ones() -> None:
    autoscaler = fleet()
    first = autoscaler.decide(0.0)
    second = autoscaler.decide(5.0)
    assert "QueueLimit" not in second
    assert second.merge_earlier(first)["QueueLimit"] is first["QueueLimit"]
    assert list(second.merge_earlier(first)) == [name for name in second.targets if name in first or name in second]
