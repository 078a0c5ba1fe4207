"""The autoscaler of one fleet: from what is observed of it to replicas, live cap and token budget.

Pure and without a clock, so that the operator, ``paternoster up`` and a simulation decide alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paternoster_operator.autoscaling.control_loop import ControlLoop, LoopStates
from paternoster_operator.autoscaling.decision import REPLICAS, Decision, LoopDecision
from paternoster_operator.autoscaling.loops.limits import ReplicaState
from paternoster_operator.autoscaling.loops.live_cap import LiveCapLoop
from paternoster_operator.autoscaling.loops.queue_wait import QueueWaitLoop
from paternoster_operator.autoscaling.loops.replicas import ReplicaLoop, seconds_idle
from paternoster_operator.autoscaling.loops.token_budget import TokenBudgetLoop
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning
from paternoster_operator.autoscaling.windows import SignalWindows

MakeLoop = Callable[[ScalingPolicy, Tuning], ControlLoop]
LOOPS: Final[Sequence[MakeLoop]] = (TokenBudgetLoop, LiveCapLoop, ReplicaLoop, QueueWaitLoop)
"""In the order of evaluation: replicas are decided by what budget and cap will hold, and the queue is bounded only
where no replica can be added."""


@dataclass(slots=True)
class Autoscaler:
    """Observes one fleet and decides what its loops want; times are the caller's clock.

    ``observe`` appends to one window, of the last 30 s. ``decide`` learns from it, once in 5 s, and
    evaluates the loops in order, each at its own period; each reads what an earlier one just decided. Live cap and
    token budget count as no capacity, so that a cut of either is no demand. ``docs/control.md`` has the law on one
    page, and an example.
    """

    policy: ScalingPolicy
    """May be replaced between two decisions, by what holds then."""
    tuning: Tuning = DEFAULT_TUNING
    make_loops: Sequence[MakeLoop] = LOOPS
    states: LoopStates = field(default_factory=LoopStates)
    """What each loop remembers; empty before the first decision."""
    models: Models = field(init=False)
    signals: Signals = field(default_factory=Signals)
    """Signals of the last observation."""
    windows: SignalWindows = field(init=False)
    _observation: Observation | None = None

    def __post_init__(self) -> None:
        self.models = Models.empty(self.tuning)
        self.windows = SignalWindows(self.tuning)

    @property
    def loops(self) -> list[ControlLoop]:
        """In the order of evaluation."""
        return [make(self.policy, self.tuning) for make in self.make_loops]

    def observe(self, observation: Observation) -> Signals:
        """Append an observation to the windows, and summarize them."""
        self._observation = observation
        self.windows.observe(observation)
        self.signals = self.windows.summarize_signals()
        return self.signals

    def decide(self, now: float) -> Decision:
        """What to have from now on; at first what there is, so that a restarted operator changes nothing by itself."""
        decision, self.models, self.states = decide_loops(
            self.loops, self._observation, self.signals, self.models, self.states, now
        )
        return decision


def decide_loops(
    loops: Sequence[ControlLoop],
    observation: Observation | None,
    signals: Signals,
    models: Models,
    states: LoopStates,
    now: float,
) -> tuple[Decision, Models, LoopStates]:
    """The decision at ``now``, and what to remember for the next one.

    Each loop begins with what runs by the last ``observation``; without one what was decided last runs.
    """
    models, states, made = models.learn_signals(signals, now), LoopStates(states), dict[str, LoopDecision]()
    for loop in loops:
        if observation is not None:
            states[loop.name] = loop.adopt_running(observation, signals, states.get(loop.name))
        decision, states[loop.name] = loop.evaluate(signals, models, states, now)
        if decision is not None:
            made[loop.name] = decision
    return Decision(made, states.targets), models, states


def seconds_until_sleep(loop: ReplicaPolicy, signals: Signals, states: LoopStates, now: float) -> float | None:
    """Until the fleet goes to zero where no request comes; None where that time has come, or will not."""
    if not states or states[REPLICAS].target == 0 or signals.demand > 0:
        return None
    idle = seconds_idle(signals, states.find(ReplicaState), now)
    return None if loop.idle_seconds is None or idle >= loop.idle_seconds else loop.idle_seconds - idle
