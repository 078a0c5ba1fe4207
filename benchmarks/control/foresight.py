"""What knowing the future is worth to a fleet that may change: the cheapest schedule of replicas for known traffic.

No policy can have it. It is found by local search, so the cheapest there is may cost less still.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from control.contenders import Contender
from control.evaluate import Score
from control.hindsight import searched
from paternoster_simulator.policy import Action, Observation

SLOT_SECONDS = 60.0
"""How long a number of replicas holds at least: less than most take to start."""
SHORT_SLOTS = 4
"""Longest stretch of a move that is about details."""

Schedule = tuple[int, ...]
"""Replicas that are asked for, slot by slot."""


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
    ("control.foresight", "paternoster_simulator"),
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
        known = searched(choices, lambda choice: self.score(choice["schedule"]), [self.target])
        enough = [index for index, score in known.items() if score.slo_attainment >= self.target]
        return (still[min(enough)], known[min(enough)]) if enough else None

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
