"""What knowing the future would be worth: the cheapest schedule of replicas for each scenario of ``control``.

    python benchmarks/foresight.py --traces FOLDER --workers 2                    both targets; each an hour of one core
    python benchmarks/foresight.py --scenarios bursts --targets 95 --evaluations 50

The schedules are for the first draw of the part that policies are judged on. What was evaluated is kept under
``--results`` and never run again while code, scenario and schedule are the same.
"""

import argparse
import sys
from collections import deque
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH keeps it off

from tqdm import tqdm

from control.evaluate import Memory, Score, evaluate
from control.foresight import CONTENDER, SLOT_SECONDS, Foresight, Schedule
from control.scenarios import SCENARIOS
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policies.peers.bounds import Bounds

FIRST = (0,)
"""Whoever knows the future knows one: the first draw of the part that judges."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Search the cheapest schedule of replicas for known traffic.")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="where the trace files are")
    parser.add_argument(
        "--scenarios", nargs="+", choices=SCENARIOS, default=[*SCENARIOS], metavar="NAME", help=", ".join(SCENARIOS)
    )
    parser.add_argument(
        "--targets", nargs="+", type=int, default=[99, 95], metavar="PERCENT", help="to attain (default: 99 95)"
    )
    parser.add_argument("--evaluations", type=int, default=150, metavar="N", help="simulations of each (default: 150)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--results", type=Path, default=Path("results/control"), metavar="FOLDER")
    options = parser.parse_args()
    for name, value in (("evaluations", options.evaluations), ("workers", options.workers)):
        if value < 1:
            parser.error(f"{name} is {value}: must be at least 1")
    for target in options.targets:
        if not 0 < target <= 100:
            parser.error(f"targets has {target}: must be above 0 and at most 100")
    for name in options.scenarios:
        if (why := SCENARIOS[name].missing(options.traces)) is not None:
            parser.error(f"scenarios has {name}: it {why}")

    asked = [(scenario, target) for scenario in options.scenarios for target in options.targets]
    found: dict[tuple[str, int], tuple[Schedule, Score] | None] = {}
    with ProcessPoolExecutor(options.workers) as pool, tqdm(total=len(asked), unit="search", disable=None) as bar:
        jobs = {
            pool.submit(
                search, *question, options.evaluations, options.traces, options.results / "evaluations"
            ): question
            for question in asked
        }
        for job in as_completed(jobs):
            found[jobs[job]] = job.result()
            bar.update()
    print("| scenario | target | attained | GPU-hours | preempted | replicas, minute by minute |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for question in asked:
        print(line(*question, found[question]))
    return 0


def search(
    name: str, target: int, evaluations: int, traces: Path | None, folder: Path
) -> tuple[Schedule, Score] | None:
    """The cheapest schedule found, after the warm-up; None when the most replicas are not enough."""
    scenario, memory = SCENARIOS[name], Memory(folder)

    def score(schedule: Schedule) -> Score:
        choice = {"schedule": schedule}
        path = memory.path(scenario, "test", CONTENDER, choice, FIRST)
        known = memory.recall(path)
        if known is None:
            known = evaluate(scenario, "test", CONTENDER, choice, traces, FIRST)
            memory.keep(path, known)
        return known

    bounds = Bounds.of(LLMDeploymentSpec.model_validate(scenario.document))
    free = int(scenario.warm_seconds // SLOT_SECONDS)
    slots = int(scenario.duration // SLOT_SECONDS) + 1
    searched = Foresight(score, target / 100, max(bounds.minimum, 1), bounds.maximum, slots, free, evaluations)
    last = deque(searched.best(), maxlen=1)
    return (last[0][0][free:], last[0][1]) if last else None


def line(name: str, target: int, found: tuple[Schedule, Score] | None) -> str:
    if found is None:
        return f"| {name} | {target} % | not with all replicas | | | |"
    schedule, score = found
    said = f"{score.slo_attainment:.2%} | {score.gpu_hours:.2f} | {score.preemption_rate:.1%}"
    return f"| {name} | {target} % | {said} | {' '.join(map(str, schedule))} |"


if __name__ == "__main__":
    sys.exit(main())
