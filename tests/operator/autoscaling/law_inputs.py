"""A policy as from a manifest, signals of a fleet of two, and one pure decision, for the tests of the law."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.autoscaling import autoscaler
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates
from paternoster_operator.autoscaling.decision import (
    LIVE_CAP,
    QUEUE_WAIT,
    REPLICAS,
    TOKEN_BUDGET,
    Decision,
    LoopDecision,
)
from paternoster_operator.autoscaling.loops.limits import Evaluation, ReplicaState
from paternoster_operator.autoscaling.loops.live_cap import LiveCapState
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING


def policy(**spec: Any) -> ScalingPolicy:
    return _read_policy(json.dumps(spec))


@cache
def _read_policy(spec: str) -> ScalingPolicy:
    parts = {
        "engine": {"maxNumSeqs": 48},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 10},
        "concurrency": {"mode": "Auto"},
        **json.loads(spec),
    }
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "a"},
        "spec": {"model": {"source": "package://m"}, **parts},
    }
    return ScalingPolicy.from_spec(parse_resource(document).spec)


def step_sums(steps: Iterable[tuple[StepWork, float]]) -> tuple[float, ...]:
    """Sums that an engine reports of (work, seconds) of its steps."""
    sums = StepSums()
    for work, seconds in steps:
        sums.add(work, seconds)
    return sums.total


def decoding(base: float, slope: float) -> tuple[float, ...]:
    """Steps of 20 and of 60 sequences without context, each ``base + slope x sequences`` seconds long."""
    works = [StepWork(decode_sequences=n) for n in (20, 60)] * 10
    return step_sums((work, base + slope * work.decode_sequences) for work in works)


def seen(**values: Any) -> Signals:
    defaults = {"ready": 2, "fresh": True, "lowest_cap": 48}
    return Signals(**{**defaults, **values})


@dataclass(frozen=True)
class LawState:
    """What the law remembers: the states of its loops, and its models."""

    states: LoopStates
    models: Models

    @property
    def replicas(self) -> int:
        return self.states[REPLICAS].target

    @property
    def live_cap(self) -> int:
        return self.states[LIVE_CAP].target

    @property
    def token_budget(self) -> int:
        return self.states[TOKEN_BUDGET].target

    @property
    def of_replicas(self) -> ReplicaState:
        return self.states.find(ReplicaState)

    def with_loop(self, name: str, **changes: Any) -> "LawState":
        """Copy the state but for some fields of one loop's."""
        state: Any = self.states[name]
        return replace(self, states=LoopStates({**self.states, name: replace(state, **changes)}))


def law_state(
    replicas: int = 2,
    live_cap: int = 48,
    *,
    since: float = -1e6,
    token_budget: int = 0,
    queue_wait: int = 0,
    budget_changed: float | None = None,
    cap_changed: float | None = None,
    evaluations: Sequence[Evaluation] = (),
    learnt: float | None = None,
    model: ReplicaModel | None = None,
) -> LawState:
    """A state as it may be found; by default one that has been there for long and learnt nothing."""
    cap = LiveCapState(target=live_cap, changed=cap_changed)
    fleet = ReplicaState(target=replicas, since=since, evaluations=tuple(evaluations))
    budget = LoopState(target=token_budget, changed=budget_changed)
    wait = LoopState(target=queue_wait)
    states = LoopStates({TOKEN_BUDGET: budget, LIVE_CAP: cap, REPLICAS: fleet, QUEUE_WAIT: wait})
    return LawState(states, Models(ReplicaModel() if model is None else model, learnt=learnt))


@dataclass(frozen=True)
class Made:
    """A decision and what is remembered after it."""

    decision: Decision
    state: LawState

    @property
    def replicas(self) -> LoopDecision | None:
        return self.decision.get(REPLICAS)

    @property
    def live_cap(self) -> LoopDecision | None:
        return self.decision.get(LIVE_CAP)

    @property
    def token_budget(self) -> LoopDecision | None:
        return self.decision.get(TOKEN_BUDGET)

    @property
    def queue_wait(self) -> LoopDecision | None:
        return self.decision.get(QUEUE_WAIT)


def decide(policy: ScalingPolicy, signals: Signals, state: LawState, now: float) -> Made:
    """One decision of the law with its usual loops and constants."""
    loops = [make(policy, DEFAULT_TUNING) for make in autoscaler.LOOPS]
    decision, models, states = autoscaler.decide_loops(loops, None, signals, state.models, state.states, now)
    return Made(decision, LawState(states, models))


def first_state(policy: ScalingPolicy, now: float, *, replicas: int | None = None, live_cap: int = 0) -> LawState:
    """The state that the law begins with where that many replicas are wanted, or none runs yet."""
    start = policy.start_replicas if replicas is None else replicas
    observation = Observation(now, start, (), (), (), {}, live_cap=live_cap or None)
    loops = [make(policy, DEFAULT_TUNING) for make in autoscaler.LOOPS]
    return LawState(
        LoopStates({loop.name: loop.adopt_running(observation, Signals(), None) for loop in loops}), Models()
    )
