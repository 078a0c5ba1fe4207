"""What knowing the future would be worth: the cheapest schedule of replicas for each scenario of ``control``.

    python benchmarks control.foresight --traces FOLDER --workers 2        both targets; each an hour of one core
    python benchmarks control.foresight --scenarios bursts --targets 95 --evaluations 50

No policy can have it. Schedules are found by local search, so the cheapest there is may cost less still; they are for
the first draw of the part that policies are judged on. What was evaluated is kept under ``--results`` and never run
again while code, scenario and schedule are the same.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from control.contenders import Contender
from control.evaluate import Memory, Score, evaluate
from control.hindsight import searched
from control.scenarios import SCENARIOS
from harness.arguments import RunnerParser
from harness.results import markdown_table
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Action
from peer_policies.bounds import Bounds

SLOT_SECONDS = 60.0
"""How long a number of replicas holds at least: less than most take to start."""
SHORT_SLOTS = 4
"""Longest stretch of a move that is about details."""
FIRST = (0,)
"""The one future that schedules are made for: the first draw of the part that judges."""

Schedule = tuple[int, ...]
"""Replicas that the schedule orders, slot by slot."""


class ScheduledPolicy:
    """Asks for what a schedule says, and for its last number after its end; caps are left alone."""

    period_seconds = 15.0

    def __init__(self, schedule: Sequence[int]) -> None:
        self._schedule = schedule

    def decide(self, observation: Observation) -> Action:
        return Action(self._schedule[min(int(observation.now // SLOT_SECONDS), len(self._schedule) - 1)])


CONTENDER = Contender(
    "scheduled-in-hindsight",
    lambda document, profile: {},
    lambda document, profile, choice: ScheduledPolicy(choice["schedule"]),
    ("control.foresight",),
    in_hindsight=True,
)


@dataclass
class Foresight:
    """A search for the cheapest schedule that attains ``target``, with bounds on replicas and evaluations."""

    score: Callable[[Schedule], Score]
    target: float
    lowest: int
    highest: int
    slots: int
    free: int
    """First slot that is not given: those before it are warm-up, in which nothing is done or counted."""
    evaluations: int
    seed: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def best(self) -> Iterator[tuple[Schedule, Score]]:
        """The best so far after each evaluation; nothing when the most replicas are not enough."""
        start = self._stands_still()
        if start is None:
            return
        schedule, score = start
        yield start
        for done in range(self.evaluations):
            if all(replicas == self.lowest for replicas in schedule[self.free :]):
                return
            move = self._move(schedule, 1 - done / self.evaluations)
            tried = self.score(move)
            cheaper = tried.gpu_hours < score.gpu_hours and tried.slo_attainment >= self.target
            better = tried.gpu_hours <= score.gpu_hours and tried.slo_attainment > score.slo_attainment
            if cheaper or better:
                schedule, score = move, tried
            yield schedule, score

    def _stands_still(self) -> tuple[Schedule, Score] | None:
        """The fewest replicas that are enough all the time; more are taken to serve no worse."""
        still = [(size,) * self.slots for size in range(self.lowest, self.highest + 1)]
        choices = [{"replicas": schedule[0], "schedule": schedule} for schedule in still]
        scores = searched(choices, lambda choice: self.score(choice["schedule"]), [self.target])
        enough = [index for index, score in scores.items() if score.slo_attainment >= self.target]
        return (still[min(enough)], scores[min(enough)]) if enough else None

    def _move(self, schedule: Schedule, breadth: float) -> Schedule:
        """Another schedule that asks for no more in all: a stretch lower, levelled, or taken from elsewhere.

        ``breadth``, 0 to 1, is the share of all slots that a stretch may have: coarse first, details last.
        """
        choose = self._random
        while True:
            changed = list(schedule)
            here, kind = self._stretch(breadth), choose.random()
            if kind < 2 / 3:
                self._add(changed, here, -1)
            elif kind < 5 / 6:
                beside = here.start - 1 if choose.random() < 0.5 else min(here.stop, self.slots - 1)
                changed[here.start : here.stop] = [schedule[beside]] * len(here)
            else:
                self._add(changed, here, +1)
                self._add(changed, self._stretch(breadth), -1)
            if tuple(changed) != schedule and sum(changed) <= sum(schedule):
                return tuple(changed)

    def _stretch(self, breadth: float) -> range:
        free = self.slots - self.free
        longest = max(int(breadth * free), 1) if self._random.random() < 2 / 3 else min(SHORT_SLOTS, free)
        begin = self._random.randrange(self.free, self.slots)
        return range(begin, min(begin + self._random.randint(1, longest), self.slots))

    def _add(self, schedule: list[int], where: range, difference: int) -> None:
        for slot in where:
            schedule[slot] = min(max(schedule[slot] + difference, self.lowest), self.highest)


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="where the trace files are")
    parser.add_names("--scenarios", SCENARIOS)
    parser.add_number("--targets", [99, 95], "percent to attain", most=100)
    parser.add_number("--evaluations", 150, "simulations of each")
    parser.add_number("--workers", 1, "processes")
    parser.add_argument("--results", type=Path, default=Path("results/control"), metavar="FOLDER")
    options = parser.parse_args()
    for name in options.scenarios:
        if (why := SCENARIOS[name].missing(options.traces)) is not None:
            parser.error(f"scenarios has {name}: it {why}")

    searches = [(scenario, target) for scenario in options.scenarios for target in options.targets]
    found: dict[tuple[str, int], tuple[Schedule, Score] | None] = {}
    with ProcessPoolExecutor(options.workers) as pool, tqdm(total=len(searches), unit="search", disable=None) as bar:
        jobs = {
            pool.submit(
                search, *question, options.evaluations, options.traces, options.results / "evaluations"
            ): question
            for question in searches
        }
        for job in as_completed(jobs):
            found[jobs[job]] = job.result()
            bar.update()
    rows = [cells(*question, found[question]) for question in searches]
    print(markdown_table(HEAD, rows, ["---", *["---:"] * 4, "---"]))
    return 0


def search(
    name: str, target: int, evaluations: int, traces: Path | None, folder: Path
) -> tuple[Schedule, Score] | None:
    """The cheapest schedule found, after the warm-up; None when the most replicas are not enough."""
    scenario, memory = SCENARIOS[name], Memory(folder)

    def score(schedule: Schedule) -> Score:
        choice = {"schedule": schedule}
        path = memory.path(scenario, "test", CONTENDER, choice, FIRST)
        return memory.recall_or(path, lambda: evaluate(scenario, "test", CONTENDER, choice, traces, FIRST))

    bounds = Bounds.of(LLMDeploymentSpec.model_validate(scenario.document))
    free = int(scenario.warm_seconds // SLOT_SECONDS)
    slots = int(scenario.duration // SLOT_SECONDS) + 1
    searched = Foresight(score, target / 100, max(bounds.minimum, 1), bounds.maximum, slots, free, evaluations)
    last = deque(searched.best(), maxlen=1)
    return (last[0][0][free:], last[0][1]) if last else None


HEAD = ("scenario", "target", "attained", "GPU-hours", "preempted", "replicas, minute by minute")


def cells(name: str, target: int, found: tuple[Schedule, Score] | None) -> Sequence[str]:
    if found is None:
        return name, f"{target} %", "not with all replicas", "", "", ""
    schedule, score = found
    figures = f"{score.slo_attainment:.2%}", f"{score.gpu_hours:.2f}", f"{score.preemption_rate:.1%}"
    return name, f"{target} %", *figures, " ".join(map(str, schedule))
