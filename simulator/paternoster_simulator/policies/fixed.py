"""A fixed fleet: a number of replicas, and a live cap. The oracle of a sweep is the best of these."""

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import Profile


class FixedPolicy:
    """``replicas`` and ``cap`` from the first second to the last."""

    def __init__(self, replicas: int, cap: int | None = None, *, period_seconds: float = 5.0) -> None:
        if replicas < 1:
            raise ValueError(f"replicas is {replicas}: must be at least 1")
        self.period_seconds = period_seconds
        self._action = Action(replicas, cap)

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, profile: Profile) -> "FixedPolicy":
        """The fewest replicas that a manifest allows; raises ``ValueError`` where that is none."""
        if spec.autoscaling is not None:
            return cls(spec.autoscaling.min_replicas)
        return cls(1 if spec.replicas is None else spec.replicas)

    def decide(self, observation: Observation) -> Action:
        return self._action
