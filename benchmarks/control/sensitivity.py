"""How much the law depends on each of its constants: the figure of ``benchmarks/control/results.md``.

    python benchmarks control.sensitivity --figure F.svg             bursts and a day; about 60 simulations
    python benchmarks control.sensitivity --constants SAFETY STARTUPS --points 5    some of them, more closely

Each constant is taken over a decade around its value, alone, on the traffic that settings are tuned on. What was
simulated is kept under ``--results`` and never run again while code, scenario and value are the same.
"""

import argparse
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from control.contenders import contenders
from control.evaluate import Memory, Score, evaluate
from control.outcome.small_multiples import figure
from control.scenarios import SCENARIOS, Scenario
from paternoster_simulator.policies.registry import OURS

PACKAGE = "paternoster_operator.autoscaling"
MODULES = (
    "concurrency", "demand", "limits", "replica_model", "replicas", "step_model", "token_budget", "trend",
)  # fmt: skip
CONSTANTS: Mapping[str, str] = {
    "ITL_MARGIN": "replica_model",
    "EVIDENCE_WINDOWS": "concurrency",
    "CALM_WINDOWS": "concurrency",
    "DRAIN_SECONDS": "demand",
    "CONFIDENCE": "demand",
    "HALF_LIFE_SECONDS": "step_model",
    "RIDGE": "step_model",
    "FAR": "step_model",
    "SHORT": "replica_model",
    "KEPT_STARTUPS": "limits",
    "STARTUPS": "limits",
    "UNKNOWN_STARTUP_SECONDS": "limits",
    "SAFETY": "demand",
    "BASELINE_SECONDS": "trend",
    "CERTAINTY": "trend",
    "MISFIT": "trend",
}
"""Name -> module that says why."""
HIGHEST: Mapping[str, float] = {"ITL_MARGIN": 1.0, "SHORT": 1.0}
"""Shares end at the whole."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one constant, and what it came to."""

    scenario: str
    constant: str
    factor: float
    """Of the value in the code."""
    value: float
    score: Score


def value_of(constant: str) -> float:
    """As it is in the code; raises ``KeyError`` for what is no constant of the law."""
    return float(getattr(importlib.import_module(f"{PACKAGE}.{CONSTANTS[constant]}"), constant))


def scaled(constant: str, factor: float) -> float:
    """``factor`` times the value, whole where the constant is, and within its range."""
    value = value_of(constant) * factor
    if isinstance(getattr(importlib.import_module(f"{PACKAGE}.{CONSTANTS[constant]}"), constant), int):
        value = max(round(value), 1)
    return min(value, HIGHEST.get(constant, value))


@contextmanager
def changed(constant: str, value: float) -> Iterator[None]:
    """The law with another value, in this process, until the block ends."""
    before = getattr(importlib.import_module(f"{PACKAGE}.{CONSTANTS[constant]}"), constant)
    made = type(before)(value)
    modules = [importlib.import_module(f"{PACKAGE}.{name}") for name in MODULES]
    holders = [module for module in modules if hasattr(module, constant)]
    try:
        for module in holders:
            setattr(module, constant, made)
        yield
    finally:
        for module in holders:
            setattr(module, constant, before)


class Sensitivity:
    """Evaluates points on the tuning part, at most once each."""

    def __init__(self, traces: Path | None, results: Path) -> None:
        self._traces = traces
        self._memory = Memory(results / "sensitivity")
        self._ours = contenders()[OURS]

    def point(self, scenario: Scenario, constant: str, factor: float) -> Point:
        value = scaled(constant, factor)
        # The value in the code is the same question whatever constant is looked at.
        asked = {} if value == value_of(constant) else {"constant": constant, "value": value}
        path = self._memory.path(scenario, "tune", self._ours, asked)
        score = self._memory.recall(path)
        if score is None:
            with changed(constant, value):
                score = evaluate(scenario, "tune", self._ours, {}, self._traces)
            self._memory.keep(path, score)
        return Point(scenario.name, constant, factor, value, score)


def table(points: Sequence[Point]) -> str:
    """As Markdown: what the ends of the range come to, and the value in the code between them."""
    lines = [
        "| scenario | constant | value | SLO | GPU-hours | preempted |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for p in points:
        cells = (p.scenario, f"`{p.constant}`", f"{p.value:g}", f"{p.score.slo_attainment:.2%}")
        lines.append(f"| {' | '.join(cells)} | {p.score.gpu_hours:.2f} | {p.score.preemption_rate:.2%} |")
    return "\n".join(lines) + "\n"


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
