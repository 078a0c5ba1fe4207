"""One search for every contender: settings tried on the tuning part, and the best of them on the test part."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from control.contenders import Choice, Contender, contenders
from control.evaluate import Memory, Score, evaluate
from control.hindsight import searched
from control.pareto import best
from control.scenarios import QUICK, SCENARIOS, Part, Scenario

TARGETS = (0.99, 0.95)
"""Attainments that settings are tuned for."""
DEFAULT = "default"
"""The operating point without tuning."""


@dataclass(frozen=True, slots=True)
class Task:
    """One evaluation, small enough to be sent to another process."""

    scenario: str
    part: Part
    contender: str
    choice: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One contender at one operating point, judged on the test part."""

    scenario: str
    contender: str
    point: str
    """:data:`DEFAULT`, or the attainment that it was tuned for."""
    choice: Choice
    tuned: Score | None
    """What these settings came to on the tuning part; None for those without a search, or with one on the test."""
    test: Score
    in_hindsight: bool = False


class Bench:
    """Runs evaluations, at most once each, in this process or in several."""

    def __init__(self, *, traces: Path | None, results: Path, workers: int, quick: bool) -> None:
        self.scenarios: Mapping[str, Scenario] = QUICK if quick else SCENARIOS
        self.contenders = contenders()
        self._traces = traces
        self._quick = quick
        self._memory = Memory(results / "evaluations")
        self._workers = workers

    def scores(self, tasks: Sequence[Task], what: str) -> list[Score]:
        """One for each task, in order."""
        paths = {task: self._path(task) for task in tasks}
        done = {task: score for task, path in paths.items() if (score := self._memory.recall(path)) is not None}
        missing = [task for task in paths if task not in done]
        with tqdm(total=len(paths), initial=len(done), desc=what, unit="run", disable=None) as bar:
            for task, score in self._run(missing):
                self._memory.write_score(paths[task], score)
                done[task] = score
                bar.update()
        return [done[task] for task in tasks]

    def compare(self, scenario: Scenario, contenders: Sequence[Contender], budget: int) -> list[Row]:
        """For each contender its default, and with a budget above 1 its best settings for each of :data:`TARGETS`."""
        tries = {
            contender.name: contender.choices(scenario.document, scenario.profile, budget)
            for contender in contenders
            if budget > 1 or contender.in_hindsight
        }
        search = [
            self.task(scenario, "tune", contender, choice)
            for contender in contenders
            if not contender.in_hindsight
            for choice in tries.get(contender.name, [])
        ]
        found = dict(zip(search, self.scores(search, f"{scenario.name}: search"), strict=True))
        for contender in contenders:
            if contender.in_hindsight:
                tries[contender.name], scores = self._in_hindsight(scenario, contender, tries[contender.name])
                found |= scores
        picks = [
            (contender, *pick)
            for contender in contenders
            for pick in self._picks(scenario, contender, tries.get(contender.name, []), found)
        ]
        tests = [self.task(scenario, "test", contender, choice) for contender, _, choice, _ in picks]
        judged = self.scores(tests, f"{scenario.name}: test")
        return [
            Row(scenario.name, contender.name, point, choice, tuned, test, contender.in_hindsight)
            for (contender, point, choice, tuned), test in zip(picks, judged, strict=True)
        ]

    def _in_hindsight(
        self, scenario: Scenario, contender: Contender, choices: Sequence[Choice]
    ) -> tuple[list[Choice], dict[Task, Score]]:
        """What had to be tried of a contender on the test part, and its scores."""

        def score(choice: Choice) -> Score:
            task = self.task(scenario, "test", contender, choice)
            return self.scores([task], f"{scenario.name}: {contender.name}, {task.choice}")[0]

        scores = searched(choices, score, TARGETS)
        tried = [choices[index] for index in sorted(scores)]
        return tried, {self.task(scenario, "test", contender, choices[i]): scores[i] for i in scores}

    def _picks(
        self, scenario: Scenario, contender: Contender, choices: Sequence[Choice], found: Mapping[Task, Score]
    ) -> Iterator[tuple[str, Choice, Score | None]]:
        """What of one contender is judged: point, settings, and their score where they were tuned."""
        part: Part = "test" if contender.in_hindsight else "tune"
        scores = [found[self.task(scenario, part, contender, choice)] for choice in choices]
        if not contender.in_hindsight:
            yield DEFAULT, {}, scores[choices.index({})] if {} in choices else None
        for target in TARGETS:
            index = best(scores, target)
            if index is not None:
                yield f"{target:.0%}", choices[index], None if contender.in_hindsight else scores[index]

    @staticmethod
    def task(scenario: Scenario, part: Part, contender: Contender, choice: Choice) -> Task:
        return Task(scenario.name, part, contender.name, tuple(sorted(choice.items())))

    def _path(self, task: Task) -> Path:
        contender = self.contenders[task.contender]
        return self._memory.path(self.scenarios[task.scenario], task.part, contender, dict(task.choice))

    def _run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Score]]:
        if self._workers == 1 or len(tasks) < 2:
            for task in tasks:
                yield task, run(task, self._traces, self._quick)
            return
        with ProcessPoolExecutor(self._workers) as pool:
            waiting = {pool.submit(run, task, self._traces, self._quick): task for task in tasks}
            for future in as_completed(waiting):
                yield waiting[future], future.result()


def run(task: Task, traces: Path | None, quick: bool) -> Score:
    """One evaluation, in whatever process."""
    scenario = (QUICK if quick else SCENARIOS)[task.scenario]
    return evaluate(scenario, task.part, contenders()[task.contender], dict(task.choice), traces)
