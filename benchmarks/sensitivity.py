"""How much the law depends on each of its constants: the figure of ``benchmarks/control/results.md``.

    python benchmarks/sensitivity.py --figure F.svg             bursts and a day; about 60 simulations
    python benchmarks/sensitivity.py --constants SAFETY STARTUPS --points 5    some of them, more closely

Each constant is taken over a decade around its value, alone, on the traffic that settings are tuned on. What was
simulated is kept under ``--results`` and never run again while code, scenario and value are the same.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH keeps it off

from tqdm import tqdm

from control.scenarios import SCENARIOS
from control.sensitivity import CONSTANTS, Sensitivity, table
from control.small_multiples import figure


def main() -> int:
    parser = argparse.ArgumentParser(description="Vary the constants of the scaling law, one at a time.")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="where the trace files are")
    parser.add_argument(
        "--scenarios", nargs="+", choices=SCENARIOS, default=["bursts", "day-night"], metavar="NAME",
        help=", ".join(SCENARIOS),
    )  # fmt: skip
    parser.add_argument(
        "--constants", nargs="+", choices=CONSTANTS, default=[*CONSTANTS], metavar="NAME", help=", ".join(CONSTANTS)
    )
    parser.add_argument("--points", type=int, default=3, metavar="N", help="values of each, odd (default: 3)")
    parser.add_argument("--results", type=Path, default=Path("results/control"), metavar="FOLDER")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the SVG there")
    options = parser.parse_args()
    if options.points < 3 or options.points % 2 == 0:
        parser.error(f"points is {options.points}: must be odd and at least 3")
    for name in options.scenarios:
        if (why := SCENARIOS[name].missing(options.traces)) is not None:
            parser.error(f"scenarios has {name}: it {why}")

    factors = [10 ** (i / (options.points - 1) - 0.5) for i in range(options.points)]
    factors[options.points // 2] = 1.0
    runs = Sensitivity(options.traces, options.results)
    asked = [(c, s, f) for c in options.constants for s in options.scenarios for f in factors]
    with tqdm(asked, unit="run", disable=None) as bar:
        points = [runs.point(SCENARIOS[scenario], constant, factor) for constant, scenario, factor in bar]
    if options.figure is not None:
        options.figure.parent.mkdir(parents=True, exist_ok=True)
        options.figure.write_text(figure(points), encoding="utf-8")
    print(table(points), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
