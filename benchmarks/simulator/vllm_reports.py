"""What the law loses where engines report only what vLLM does.

    python benchmarks simulator.vllm_reports        1 minute

The same simulated fleets twice, with the same steps: once their replicas report as this project's engine does, once as
vLLM does. They are under a spike of five times the traffic, and under requests that grow tenfold half-way, with each
objective of the live cap; a few seeds each. The batching is that of this project's scheduler in both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import get_args

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.local_fleet import manifest
from harness.results import markdown_table, write_json
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.arrivals import constant_rate, generate_requests, named_pattern
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.profile import EngineName, Profile, load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits

PROFILE = "smollm2-135m-vllm-avx512-cpu1"
DURATION = 1800.0
GROWTH = 10
RATE = 1.2
"""Requests a second; the spike has five times as many."""
OBJECTIVES = ("Goodput", "PreemptionRate")
ENGINES: Sequence[EngineName] = get_args(EngineName)


def spike(profile: Profile, seed: int) -> Iterator[TraceRow]:
    """Five times the traffic for a tenth of the time."""
    limits = Limits(max_total=profile.max_model_len)
    return generate_requests(named_pattern("spike", RATE, DURATION), duration=DURATION, seed=seed, limits=limits)


def growing(profile: Profile, seed: int) -> Iterator[TraceRow]:
    """Requests whose lengths are a tenth in the first half."""
    limits = Limits(max_total=profile.max_model_len)
    for row in generate_requests(constant_rate(RATE), duration=DURATION, seed=seed, limits=limits):
        if row.arrival_s < DURATION / 2:
            yield replace(
                row, prompt_tokens=-(-row.prompt_tokens // GROWTH), output_tokens=-(-row.output_tokens // GROWTH)
            )
        else:
            yield row


TRAFFIC: Mapping[str, Callable[[Profile, int], Iterator[TraceRow]]] = {"spike": spike, "growing": growing}


def spec(profile: Profile, objective: str, max_replicas: int) -> LLMDeploymentSpec:
    goal = profile.objective
    document = manifest(
        "chat", model={"source": "file:///model"}, autoscaling={"minReplicas": 1, "maxReplicas": max_replicas},
        concurrency={"mode": "Auto", "objective": objective},
        slo={"ttftP95Milliseconds": round(goal.ttft_ms), "itlP95Milliseconds": round(goal.itl_ms)},
    )  # fmt: skip
    return parse_resource(document).spec


@dataclass(frozen=True, slots=True)
class Result:
    """One simulation."""

    traffic: str
    objective: str
    engine: str
    within: float
    """Share of the requests within the objective."""
    lost: float
    ttft_p95_ms: float
    itl_p95_ms: float
    preempted: float
    recomputed: float
    """Share of the tokens computed."""
    replica_hours: float

    @classmethod
    def from_outcome(cls, traffic: str, objective: str, engine: str, outcome: SimulationOutcome) -> "Result":
        totals = outcome.totals
        return cls(
            traffic,
            objective,
            engine,
            outcome.slo_attainment,
            outcome.lost / outcome.requests,
            outcome.find_percentiles("ttft")["p95"] or 0.0,
            outcome.find_percentiles("itl")["p95"] or 0.0,
            outcome.preemption_rate,
            totals.recomputed_tokens / totals.computed_tokens,
            outcome.replica_hours,
        )


def simulate(profile: Profile, traffic: str, objective: str, seed: int, max_replicas: int) -> Result:
    wanted = spec(profile, objective, max_replicas)
    outcome = simulate_fleet(
        profile,
        TRAFFIC[traffic](profile, seed),
        LawPolicy.from_spec(wanted, profile),
        start_replicas=1,
        duration=DURATION,
        seed=seed,
        settings=FleetSettings.from_spec(wanted, profile),
    )
    return Result.from_outcome(traffic, objective, profile.engine, outcome)


COLUMNS = (
    "traffic", "objective", "reports of", "within the objective", "lost", "first token p95, s",
    "between tokens p95, ms", "preempted", "computed twice", "replica-hours",
)  # fmt: skip


def markdown(results: Sequence[Result]) -> str:
    """A row for each kind of run, with means over seeds; of the share within the objective also the least and most."""
    lines = []
    runs: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        runs.setdefault((result.traffic, result.objective, result.engine), []).append(result)
    for names, each in runs.items():

        def mean(name: str, each: Sequence[Result] = each) -> float:
            return fmean(getattr(result, name) for result in each)

        within = [result.within for result in each]
        lines.append((
            *names, f"{mean('within'):.1%} ({min(within):.1%} to {max(within):.1%})", f"{mean('lost'):.1%}",
            f"{mean('ttft_p95_ms') / 1000:.1f}", f"{mean('itl_p95_ms'):.0f}", f"{mean('preempted'):.1%}",
            f"{mean('recomputed'):.1%}", f"{mean('replica_hours'):.2f}",
        ))  # fmt: skip
    return markdown_table(COLUMNS, lines)


def main() -> int:
    parser = RunnerParser(__doc__, json="write each simulation here")
    parser.add_argument("--profile", default=PROFILE, metavar="NAME|FILE", help="whose steps (default: %(default)s)")
    parser.add_number("--seeds", 5, "of each kind")
    parser.add_number("--max-replicas", 8, "of a fleet")
    args = parser.parse_args()
    measured = load_profile(args.profile)
    kinds = [(traffic, objective, engine) for traffic in TRAFFIC for objective in OBJECTIVES for engine in ENGINES]
    runs = [(*kind, seed) for kind in kinds for seed in range(args.seeds)]
    results = [
        simulate(measured.model_copy(update={"engine": engine}), traffic, objective, seed, args.max_replicas)
        for traffic, objective, engine, seed in tqdm(runs, unit="simulation", disable=None)
    ]
    write_json(args.json, results)
    print(markdown(results))
    return 0
