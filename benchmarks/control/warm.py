"""The first minutes of a comparison: every policy looks and remembers, and nothing it says is done."""

from dataclasses import replace

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action, Policy


class Warmed:
    """A policy whose orders of the first ``seconds`` leave the fleet at ``replicas``; caps are obeyed.

    Windows fill with real traffic before anything counts, so that no policy is judged by how an empty memory begins.
    """

    def __init__(self, policy: Policy, *, seconds: float, replicas: int) -> None:
        self.period_seconds = policy.period_seconds
        self._policy = policy
        self._seconds = seconds
        self._replicas = replicas

    def decide(self, observation: Observation) -> Action:
        action = self._policy.decide(observation)
        return replace(action, replicas=self._replicas) if observation.now < self._seconds else action
