"""The operator's own law as a policy: the same windows, the same function, the same memory as in a reconcile."""

from dataclasses import replace

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.report.startup import StartupTimes
from paternoster_operator.scaling.decision import LawState
from paternoster_operator.scaling.law import decide, first_state, longest_window, observation_window
from paternoster_operator.scaling.policy import ScalingPolicy
from paternoster_operator.scaling.signals import SignalWindows
from paternoster_simulator.policy import Action, Observation
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import with_capacity

LOOK_SECONDS = 5.0
"""As the operator's setting ``look_seconds`` has it."""


class LawPolicy:
    """Observes and decides as ``paternoster_operator.reconcile`` does, without a cluster."""

    period_seconds = LOOK_SECONDS

    def __init__(self, policy: ScalingPolicy) -> None:
        self._policy = policy
        self._windows = SignalWindows()
        self._startup = StartupTimes()
        self._state: LawState | None = None

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, profile: Profile) -> "LawPolicy":
        """What a manifest asks for, on this hardware."""
        return cls(ScalingPolicy.from_spec(with_capacity(spec, profile)))

    def decide(self, observation: Observation) -> Action:
        cap, state = self._policy.cap, self._state
        for pod, stats in observation.engines.items():
            self._windows.observe(pod, stats, observation.now, longest_window(cap))
        self._windows.keep({*observation.serving, *observation.pending, *observation.draining})
        for seconds in observation.startups:
            self._startup.learn(seconds)
        signals = self._windows.summarize(
            window_seconds=longest_window(cap) if state is None else observation_window(cap, state, observation.now),
            flow_seconds=cap.window_seconds,
            now=observation.now,
            ready_pods=observation.serving,
            pending_pods=len(observation.pending),
            held=observation.held,
            startup_seconds=self._startup.average,
        )
        if state is None:
            state = first_state(
                self._policy, observation.now, replicas=observation.replicas, cap=signals.lowest_cap or None
            )
        elif state.replicas != observation.replicas:
            # What was ordered was not done, so it is neither on its way nor to be done late; what was seen counts.
            state = replace(state, replicas=observation.replicas, ordered=None, changes=())
        decision = decide(self._policy, signals, state, observation.now)
        self._state = decision.state
        made = [loop.document() for loop in (decision.concurrency, decision.replicas) if loop is not None]
        return Action(decision.state.replicas, decision.state.cap, tuple(made))
