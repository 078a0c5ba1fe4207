"""Scaling policies against each other in the simulator: the tables of ``benchmarks/control/results.md``.

    python benchmarks control.compare --traces FOLDER --budget 12 --workers 2         everything; hours
    python benchmarks control.compare --quick                                         two short scenarios; minutes
    python benchmarks control.compare --policies paternoster --scenarios bursts step  defaults alone: one run a scenario

Every policy is judged with its defaults and, with a ``--budget`` above 1, with the best of as many settings, found on
traffic that it is not judged by. Whatever was evaluated is kept under ``--results`` by content and never run again
while the code, the scenario and the settings are the same; an interrupted run goes on where it was.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from control.contenders import contenders
from control.outcome.table import markdown
from control.scenarios import QUICK, SCENARIOS
from control.search import Bench, Row
from harness.arguments import RunnerParser

QUICK_BUDGET = 2


def main() -> int:
    contenders_by_name = contenders()
    parser = RunnerParser(__doc__)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="where the trace files are")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_names("--policies", contenders_by_name, [])
    parser.add_number("--budget", None, "settings tried of each policy")
    parser.add_number("--workers", 1, "processes")
    parser.add_argument("--quick", action="store_true", help="two short scenarios, to see that everything works")
    parser.add_argument("--results", type=Path, default=Path("results/control"), metavar="FOLDER")
    options = parser.parse_args()
    budget = options.budget if options.budget is not None else QUICK_BUDGET if options.quick else 1

    bench = Bench(traces=options.traces, results=options.results, workers=options.workers, quick=options.quick)
    everyone = budget > 1 and not options.quick
    names = options.policies or [
        name for name in contenders_by_name if everyone or not contenders_by_name[name].in_hindsight
    ]
    rows: list[Row] = []
    for name in options.scenarios or bench.scenarios:
        scenario = bench.scenarios.get(name)
        why = f"not among the quick ones: {', '.join(QUICK)}" if scenario is None else scenario.missing(options.traces)
        if scenario is None or why is not None:
            print(f"{name} is left out: {why}", file=sys.stderr)
            continue
        rows += bench.compare(scenario, [contenders_by_name[policy] for policy in names], budget)
        write(rows, options.results)
    if not rows:
        print("nothing to compare", file=sys.stderr)
        return 1
    print(markdown(rows), end="")
    return 0


def write(rows: list[Row], folder: Path) -> None:
    """The table and the numbers so far."""
    (folder / "control.md").write_text(markdown(rows), encoding="utf-8")
    document = [asdict(row) for row in rows]
    (folder / "control.json").write_text(json.dumps(document, indent=2, default=str) + "\n", encoding="utf-8")
