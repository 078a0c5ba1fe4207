"""The simulator against reality: one trace through a fleet of real engines on this machine and through its simulation.

    python benchmarks simulator.reality --trace azure_llm_2023_conv.csv --json reality.json

Engines with one compute thread each are calibrated first, all at once, because they share memory bandwidth; again
after the real run, and the profile is fitted to both, so that a machine that changes under the run is seen. Client,
gateway and operator run on the same processors; what they take of them is counted, and steps are simulated on the rest.
A preemption more or less moves the law's next cut, so the simulated numbers are means of runs that are nearly alike.
Requests come at a multiple of what the first calibration says the fleet can answer; queue and preemptions are what it
does with that. A fixed cap first, then the scaling law on: cap and tokens of a step. Exit code 0 only if every ratio is
within the bar.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from harness.arguments import RunnerParser
from harness.local_fleet import FleetError
from harness.results import write_json
from paternoster_engine.bench.calibration.step_cost import fit_step_cost
from paternoster_engine.bench.machine import cpu_name
from paternoster_traces import workload
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceError, TraceRow, read_trace
from simulator.conditions import Conditions, requests
from simulator.measures import COMPARED, Measures, average, ratios
from simulator.real import SAMPLE_SECONDS, calibrate, serve, write_profile
from simulator.simulated import capacity, nearby, slowed, with_step

BAR = 0.15
console = Console(highlight=False)


@dataclass(frozen=True)
class Comparison:
    """One run of both sides."""

    policy: str
    real: Measures
    simulations: list[Measures]
    """With steps that take a little less or more."""
    request_rate: float
    load_average: tuple[float, ...]
    """Load of the machine when the run ended: 1, 5 and 15 minutes."""
    drift: float
    """Fixed seconds of a step after the real run, over those before it."""
    beside: float
    """Share of the processors that client, gateway, operator and HTTP took: steps are simulated on the rest."""

    @property
    def simulated(self) -> Measures:
        return average(self.simulations)

    @property
    def ratios(self) -> dict[str, float | None]:
        return ratios(self.simulated, self.real)

    @property
    def within(self) -> bool:
        return all(ratio is not None and abs(ratio - 1) <= BAR for ratio in self.ratios.values())

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "simulated": asdict(self.simulated), "ratios": self.ratios, "within": self.within}


async def compare(
    conditions: Conditions, rows: list[TraceRow], folder: Path, options: argparse.Namespace, *, law: bool
) -> Comparison:
    """Calibrate, serve for real, calibrate again, simulate."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything runs
    console.print(f"{'law' if law else 'fixed cap'}: calibrating {conditions.replicas} engines at once")
    profile, before = await calibrate(conditions, folder, seconds=options.calibrate_seconds / 2)
    first = fit_step_cost(before)
    rough = with_step(profile, asdict(first))
    rate = options.load * capacity(conditions, rough, rows, sample_seconds=SAMPLE_SECONDS)
    timed = workload.retime_rows(rows, rate=rate, burstiness=1.0, seed=options.seed)
    console.print(f"{len(timed)} requests at {rate:.2f} a second, {options.load:g} times the calibrated capacity")
    real, beside = await serve(conditions, timed, folder, law=law)
    _, after = await calibrate(conditions, folder, seconds=options.calibrate_seconds / 2)
    fitted = with_step(profile, asdict(fit_step_cost(before + after)))
    write_profile(fitted, folder / "profile.yaml")
    shared = slowed(fitted, 1 / (1 - beside))
    simulations = nearby(conditions, shared, timed, law=law, sample_seconds=SAMPLE_SECONDS)
    drift = sum(sample.seconds for sample in after) / len(after) / (sum(s.seconds for s in before) / len(before))
    return Comparison("law" if law else "fixed cap", real, simulations, rate, os.getloadavg(), drift, beside)


def table(comparisons: list[Comparison]) -> Table:
    shown = Table("policy", Column("number", no_wrap=True), "real", "simulated", "from - to", "ratio", "within")
    for comparison in comparisons:
        for name in Measures.__dataclass_fields__:
            real, simulated = getattr(comparison.real, name), getattr(comparison.simulated, name)
            ratio = f"{simulated / real:.2f}" if real else "-"
            each = [getattr(simulation, name) for simulation in comparison.simulations]
            spread = f"{min(each):.4g} - {max(each):.4g}"
            verdict = ""
            if name in COMPARED:
                measured = comparison.ratios[name]
                verdict = "yes" if measured is not None and abs(measured - 1) <= BAR else "NO"
            shown.add_row(comparison.policy, name, f"{real:.3f}", f"{simulated:.3f}", spread, ratio, verdict)
        shown.add_row(comparison.policy, "processors beside", f"{comparison.beside:.1%}", "", "", "", "")
        shown.add_section()
    return shown


def main() -> int:
    defaults = Conditions()
    parser = RunnerParser(__doc__, json="write everything measured")
    parser.add_argument("--trace", metavar="FILE", help="trace the requests are drawn from (default: synthetic)")
    parser.add_number("--num-prompts", 160, "requests")
    parser.add_number("--load", 2.0, "rate, as a multiple of the capacity", least=0.01)
    parser.add_number("--calibrate-seconds", 60.0, "in all", least=1)
    parser.add_names("--policies", ("fixed", "law"))
    parser.add_number("--seed", 0, "of requests and arrivals", least=0)
    parser.add_number("--max-num-seqs", defaults.max_num_seqs)
    parser.add_number("--kv-cache-mib", defaults.kv_cache_mib)
    parser.add_number("--itl-limit", defaults.itl_limit_ms, "time between tokens that the law keeps")
    parser.add_argument("--folder", type=Path, help="for logs, samples and profiles (default: a temporary one)")
    options = parser.parse_args()
    conditions = Conditions(
        max_num_seqs=options.max_num_seqs, kv_cache_mib=options.kv_cache_mib, itl_limit_ms=options.itl_limit
    )
    folder = options.folder or Path(tempfile.mkdtemp(prefix="reality-"))
    comparisons = []
    try:
        source = read_trace(options.trace) if options.trace else generate_rows(max(1000, options.num_prompts))
        rows = requests(source, options.num_prompts, seed=options.seed)
        for policy in options.policies:
            work = compare(conditions, rows, folder / policy, options, law=policy == "law")
            comparisons.append(asyncio.run(work))
    except (TraceError, FleetError, ValueError) as error:
        print(f"reality: {error}", file=sys.stderr)
        return 2
    console.print(table(comparisons))
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; logs and profiles: {folder}")
    write_json(
        options.json,
        {
            "date": f"{datetime.now():%Y-%m-%d}",
            "cpu": cpu_name(),
            "cpus": os.cpu_count(),
            "trace": Path(options.trace).name if options.trace else "synthetic",
            "conditions": asdict(conditions),
            "bar": BAR,
            "comparisons": [comparison.document() for comparison in comparisons],
        },
    )
    return 0 if all(comparison.within for comparison in comparisons) else 1
