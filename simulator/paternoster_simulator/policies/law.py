"""The operator's own autoscaler as a policy."""

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.autoscaler import Autoscaler, Samples
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.report.startup import StartupTimes
from paternoster_simulator.policies.policy import Action, Observation
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import with_capacity

LOOK_SECONDS = 5.0
"""As the operator's setting ``look_seconds`` has it."""


class LawPolicy:
    """What ``paternoster_operator.reconcile`` does with it, without a cluster."""

    period_seconds = LOOK_SECONDS

    def __init__(self, policy: ScalingPolicy) -> None:
        self._autoscaler = Autoscaler(policy)
        self._startup = StartupTimes()

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, profile: Profile) -> "LawPolicy":
        """What a manifest asks for, on this hardware."""
        return cls(ScalingPolicy.from_spec(with_capacity(spec, profile)))

    def decide(self, observation: Observation) -> Action:
        for seconds in observation.startups:
            self._startup.learn(seconds)
        samples = Samples(
            engines=observation.engines,
            serving=observation.serving,
            pending=observation.pending,
            others=observation.draining,
            held=observation.held,
            gateway_requests={"gateway": observation.requests_total},
            startup_seconds=self._startup.average,
            replicas=observation.replicas,
        )
        self._autoscaler.observe(samples, observation.now)
        decision = self._autoscaler.decide(observation.now)
        made, state = tuple(word.document() for word in decision.words), decision.state
        return Action(state.replicas, state.cap, made, state.token_budget)
