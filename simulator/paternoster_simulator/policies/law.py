"""The operator's own autoscaler as a policy."""

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.autoscaler import Autoscaler
from paternoster_operator.autoscaling.decision import LIVE_CAP, QUEUE_WAIT, REPLICAS, TOKEN_BUDGET
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.scale_down import longest_answer_seconds
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import with_capacity

PERIOD_SECONDS = 5.0
"""Time between two looks, as the operator's setting ``look_seconds`` has it."""


class LawPolicy:
    """What ``paternoster_operator.reconcile`` does with it, without a cluster."""

    period_seconds = PERIOD_SECONDS

    def __init__(
        self, policy: ScalingPolicy, tuning: Tuning = DEFAULT_TUNING, drain_timeout_seconds: float = 300.0
    ) -> None:
        self._autoscaler = Autoscaler(policy, tuning)
        self._drain_timeout = drain_timeout_seconds

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, profile: Profile, tuning: Tuning = DEFAULT_TUNING) -> "LawPolicy":
        """What a manifest asks for, on this hardware."""
        return cls(ScalingPolicy.from_spec(with_capacity(spec, profile)), tuning, spec.drain.timeout_seconds)

    def decide(self, observation: Observation) -> Action:
        self._autoscaler.observe(observation)
        decision = self._autoscaler.decide(observation.now)
        targets, made = decision.targets, tuple(made.to_document() for made in decision.values())
        longest = longest_answer_seconds(observation.engines.values(), self._autoscaler.models.replica)
        return Action(
            targets[REPLICAS],
            targets[LIVE_CAP],
            made,
            targets[TOKEN_BUDGET] or None,
            targets[QUEUE_WAIT],
            max(longest, self._drain_timeout),
        )
