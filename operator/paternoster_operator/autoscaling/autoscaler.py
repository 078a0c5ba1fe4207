"""The autoscaler of one fleet: from what is observed of it to replicas, live cap and token budget.

Pure and without a clock, so that the operator, ``paternoster up`` and a simulation decide alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paternoster_contract.stats import EngineStats
from paternoster_operator.autoscaling.control_loop import ControlLoop, LoopStates
from paternoster_operator.autoscaling.decision import REPLICAS, Decision, LoopDecision
from paternoster_operator.autoscaling.loops.limits import ReplicaState
from paternoster_operator.autoscaling.loops.live_cap import LiveCapLoop
from paternoster_operator.autoscaling.loops.queue_wait import QueueWaitLoop
from paternoster_operator.autoscaling.loops.replicas import ReplicaLoop, seconds_idle
from paternoster_operator.autoscaling.loops.token_budget import TokenBudgetLoop
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
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

    ``observe`` appends to one window, of the last ``windowSeconds`` (30). What full queues refused has arrived, too.
    ``decide`` then

    1. learns, once in 5 s: KV memory a sequence, tokens an answer, the trend of arrivals, and what a step costs by what
       is in it, from which the time between tokens follows as a line in the number of sequences;
    2. evaluates the loops in order, each at its own period:

       - the token budget, every 5 s: the largest step that, with what decodes beside a prompt, keeps the limit between
         tokens;
       - the live cap, every 5 s: cut where steps are too long without any prompt, and with the objective
         PreemptionRate to what memory has room for; a queue and room raise it;
       - replicas, every 15 s: the sequences that the traffic keeps busy over those that one replica sustains, within
         windows, steps, bounds and budget;
       - the queue, every 5 s: where no replica can be added, engines refuse what would wait too long for its first
         token.

    Replicas do not count the first two as capacity, so that a cut of either is no demand; each loop reads what an
    earlier one just decided.

    An example with the defaults: limits of 2 s and 50 ms, ``max_num_seqs`` 256, two replicas. Each ran 60 sequences on
    average, on 30 % of its KV blocks, 25 ms between tokens; earlier it ran 20 with 15 ms. So a sequence takes 0.5 % of
    the blocks, and 90 % of them hold 180 sequences; the line is 10 ms + 0.25 ms x n, which reaches 45 ms (nine tenths
    of the limit) at 140 sequences. A replica sustains min(256, 180, 140) = 140. Requests come at 40 a second with
    answers of 100 tokens: 40 x 100 x 0.045 s = 180 sequences, each as slow as on a full replica, hence ceil(180 / (0.80
    x 140)) = 2: nothing changes. At 60 requests a second it is ceil(270 / 112) = 3, and a third is added at once. Were
    prompts of 2,000 tokens among them, and a step of 2,048 tokens took 120 ms, of which 20 ms for what decodes beside,
    the token budget would be cut to 512: 20 ms + 512 x 0.049 ms is the 45 ms aimed at.
    """

    policy: ScalingPolicy
    """May be replaced between two decisions, by what holds then."""
    tuning: Tuning = DEFAULT_TUNING
    make_loops: Sequence[MakeLoop] = LOOPS
    states: LoopStates = field(default_factory=LoopStates)
    """What each loop remembers; empty before the first decision."""
    models: Models = field(init=False)
    signals: Signals = field(default_factory=Signals)
    """Those of the last observation."""
    _windows: SignalWindows = field(init=False)
    _observation: Observation | None = None

    def __post_init__(self) -> None:
        self.models = Models.empty(self.tuning)
        self._windows = SignalWindows(self.tuning)

    @property
    def loops(self) -> list[ControlLoop]:
        """In the order of evaluation."""
        return [make(self.policy, self.tuning) for make in self.make_loops]

    def observe(self, observation: Observation) -> Signals:
        """Append an observation to the windows, and summarize them."""
        self._observation = observation
        window_seconds = self.policy.concurrency.window_seconds
        self._windows.observe(observation, window_seconds)
        self.signals = self._windows.summarize_signals(window_seconds)
        return self.signals

    def decide(self, now: float) -> Decision:
        """What to have from now on; at first what there is, so that a restarted operator changes nothing by itself."""
        loops = self.loops
        if self._observation is not None:
            self.states = adopt_running(loops, self._observation, self.signals, self.states)
        decision, self.models, self.states = decide_loops(loops, self.signals, self.models, self.states, now)
        return decision

    def seconds_until_sleep(self, now: float) -> float | None:
        """Until the fleet goes to zero where no request comes; None where that time has come, or will not."""
        loop = self.policy.replicas
        if loop is None or not self.states or self.states[REPLICAS].target == 0 or self.signals.demand > 0:
            return None
        idle = seconds_idle(self.signals, self.states.find(ReplicaState), now)
        return None if loop.idle_seconds is None or idle >= loop.idle_seconds else loop.idle_seconds - idle

    def latest_sample(self, pod: str) -> EngineStats | None:
        """The last sample of a pod."""
        return self._windows.latest_sample(pod)

    def seconds_since_latest(self, pod: str, now: float) -> float:
        """Age of the last sample of a pod; 0 without one."""
        return self._windows.seconds_since_latest(pod, now)


def adopt_running(
    loops: Sequence[ControlLoop], observation: Observation, signals: Signals, states: LoopStates
) -> LoopStates:
    """The state of each loop with what runs now."""
    return LoopStates({loop.name: loop.adopt_running(observation, signals, states.get(loop.name)) for loop in loops})


def decide_loops(
    loops: Sequence[ControlLoop], signals: Signals, models: Models, states: LoopStates, now: float
) -> tuple[Decision, Models, LoopStates]:
    """The decision at ``now``, and what to remember for the next one."""
    models, states, made = models.learn_signals(signals, now), LoopStates(states), dict[str, LoopDecision]()
    for loop in loops:
        decision, states[loop.name] = loop.evaluate(signals, models, states, now)
        if decision is not None:
            made[loop.name] = decision
    return Decision(made, states.list_targets()), models, states
