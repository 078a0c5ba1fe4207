"""How much the law depends on each of its constants: the figure of ``benchmarks/control/results.md``.

    python benchmarks control.sensitivity --figure F.svg             bursts and a day; about 200 simulations
    python benchmarks control.sensitivity --constants prior_arrivals --points 5    one of them, more closely

Each constant is taken over a decade around its value, alone, on the traffic that settings are tuned on. What was
simulated is kept under ``--results`` and never run again while code, scenario and value are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from control.contenders import law
from control.evaluate import Memory, Score, evaluate
from control.outcome.small_multiples import figure
from control.scenarios import SCENARIOS, Scenario
from harness.arguments import RunnerParser
from harness.results import markdown_table
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning

CONSTANTS: Sequence[str] = [field.name for field in fields(Tuning)]
HIGHEST: Mapping[str, float] = {"itl_margin": 1.0, "crowded_kv_usage": 1.0, "window_coverage": 1.0}
"""Shares end at the whole."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one constant, and what it came to."""

    scenario: str
    constant: str
    factor: float
    """Factor of the value in the code."""
    value: float
    score: Score


def value_of(constant: str) -> float:
    """Value that the code has."""
    return float(getattr(DEFAULT_TUNING, constant))


def scaled(constant: str, factor: float) -> float:
    """``factor`` times the value, whole where the constant is, and within its range."""
    value = value_of(constant) * factor
    if isinstance(getattr(DEFAULT_TUNING, constant), int):
        value = max(round(value), 1)
    return min(value, HIGHEST.get(constant, value))


def tuned(constant: str, value: float) -> Tuning:
    """The law's constants with another value of one."""
    changes: dict[str, Any] = {constant: type(getattr(DEFAULT_TUNING, constant))(value)}
    return replace(DEFAULT_TUNING, **changes)


class Sensitivity:
    """Evaluates points on the tuning part, at most once each."""

    def __init__(self, traces: Path | None, results: Path) -> None:
        self._traces = traces
        self._memory = Memory(results / "sensitivity")
        self._ours = law()

    def point(self, scenario: Scenario, constant: str, factor: float) -> Point:
        value = scaled(constant, factor)
        # The value in the code is the same question whatever constant is looked at.
        choice = {} if value == value_of(constant) else {"constant": constant, "value": value}
        path = self._memory.path(scenario, "tune", self._ours, choice)

        def evaluate_value() -> Score:
            return evaluate(scenario, "tune", law(tuned(constant, value)), {}, self._traces)

        score = self._memory.recall_or(path, evaluate_value)
        return Point(scenario.name, constant, factor, value, score)


def table(points: Sequence[Point]) -> str:
    """Write Markdown: what the ends of the range come to, and the value in the code between them."""
    rows = [
        (p.scenario, f"`{p.constant}`", f"{p.value:g}", f"{p.score.slo_attainment:.2%}", f"{p.score.gpu_hours:.2f}",
         f"{p.score.preemption_rate:.2%}")
        for p in points
    ]  # fmt: skip
    head = ("scenario", "constant", "value", "SLO", "GPU-hours", "preempted")
    return markdown_table(head, rows, ["---"] * 2 + ["---:"] * 4) + "\n"


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="where the trace files are")
    parser.add_names("--scenarios", SCENARIOS, ["bursts", "day-night"])
    parser.add_names("--constants", CONSTANTS)
    parser.add_number("--points", 3, "values of each, odd", least=3)
    parser.add_argument("--results", type=Path, default=Path("results/control"), metavar="FOLDER")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the SVG there")
    options = parser.parse_args()
    if options.points % 2 == 0:
        parser.error(f"points is {options.points}: must be odd")
    for name in options.scenarios:
        if (why := SCENARIOS[name].missing(options.traces)) is not None:
            parser.error(f"scenarios has {name}: it {why}")

    factors = [10 ** (i / (options.points - 1) - 0.5) for i in range(options.points)]
    factors[options.points // 2] = 1.0
    runs = Sensitivity(options.traces, options.results)
    planned = [(c, s, f) for c in options.constants for s in options.scenarios for f in factors]
    with tqdm(planned, unit="run", disable=None) as bar:
        points = [runs.point(SCENARIOS[scenario], constant, factor) for constant, scenario, factor in bar]
    if options.figure is not None:
        options.figure.parent.mkdir(parents=True, exist_ok=True)
        options.figure.write_text(figure(points), encoding="utf-8")
    print(table(points), end="")
    return 0
