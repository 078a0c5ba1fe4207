"""One policy on one part of a scenario, and a memory of what that came to."""

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np

from control.contenders import Choice, Contender, with_settings
from control.scenarios import SEEDS, Part, Scenario
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.policies.policy import Action, Policy
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet

PLANT = (
    "paternoster_simulator",
    "paternoster_engine.core",
    "paternoster_traces.synthetic",
    "paternoster_traces.trace",
    "paternoster_traces.workload",
    "paternoster_gateway.routing",
)
"""What a fleet is made of under any policy: without the policies, which are each contender's own sources."""
EVALUATION_MODULES = ("control.contenders", "control.evaluate", "control.workloads")
"""What of this folder an evaluation depends on; scenarios and settings are compared by value."""


@dataclass(frozen=True, slots=True)
class Score:
    """What users saw and what it cost, after the warm-up; means where it is of several draws.

    Latencies in milliseconds, of finished requests.
    """

    requests: float
    lost: float
    slo_attainment: float
    ttft_attainment: float
    itl_attainment: float
    ttft_p99_ms: float
    itl_p99_ms: float
    preemption_rate: float
    """Distinct requests preempted over requests finished."""
    recomputed_tokens: float
    """Warm-up included."""
    gpu_hours: float
    scale_events: float
    """Warm-up included."""
    cap_events: float
    """Warm-up included."""


class Warmed:
    """A policy whose orders of the first ``seconds`` leave the fleet at ``replicas``; caps are obeyed.

    Windows fill with real traffic before anything counts, so that no policy is judged by how an empty memory begins.
    """

    def __init__(self, policy: Policy, *, seconds: float, replicas: int) -> None:
        self.period_seconds = policy.period_seconds
        self._policy = policy
        self._seconds = seconds
        self._replicas = replicas

    def decide(self, observation: Observation) -> Action:
        action = self._policy.decide(observation)
        return replace(action, replicas=self._replicas) if observation.now < self._seconds else action


def evaluate(
    scenario: Scenario,
    part: Part,
    contender: Contender,
    choice: Choice,
    traces: Path | None,
    draws: Sequence[int] | None = None,
) -> Score:
    """Simulate one part under one policy: the mean over its draws, or over some of them."""
    return average([_one_draw(scenario, part, contender, choice, traces, draw) for draw in drawn(part, draws)])


def drawn(part: Part, draws: Sequence[int] | None) -> Sequence[int]:
    """Draws of a part: ``draws``, or all there are where it is None."""
    return range(len(SEEDS[part])) if draws is None else draws


def _one_draw(
    scenario: Scenario, part: Part, contender: Contender, choice: Choice, traces: Path | None, draw: int
) -> Score:
    profile, document = scenario.profile, scenario.document
    policy = Warmed(
        contender.policy(document, profile, choice), seconds=scenario.warm_seconds, replicas=scenario.start_replicas
    )
    outcome = simulate_fleet(
        profile,
        scenario.requests(part, traces, draw),
        policy,
        start_replicas=scenario.start_replicas,
        duration=scenario.duration,
        seed=draw if part == "tune" else len(SEEDS["tune"]) + draw,
        settings=FleetSettings.from_spec(with_settings(document, {}), profile, prefix_cache=scenario.prefix_cache),
    )
    return score(outcome, scenario)


def average(scores: Sequence[Score]) -> Score:
    """Each number's mean."""
    return Score(*(fmean(values) for values in zip(*(asdict(score).values() for score in scores), strict=True)))


def score(outcome: SimulationOutcome, scenario: Scenario) -> Score:
    """The numbers of the requests that came after the warm-up, and the GPU-hours after it."""
    records, objective = outcome.records, outcome.objective
    counts = records.arrival >= scenario.warm_seconds
    finished = (records.outcome == RequestOutcome.FINISHED)[counts]
    ttft, itl = records.ttft[counts] * 1000, records.itl[counts] * 1000
    in_ttft, in_itl = finished & (ttft <= objective.ttft_ms), finished & (itl <= objective.itl_ms)
    # The fleet stands still while it warms up, so its share of the hours is known exactly.
    warm_hours = scenario.start_replicas * scenario.warm_seconds / 3600
    return Score(
        requests=len(finished),
        lost=int(np.count_nonzero(~finished)),
        slo_attainment=_mean(in_ttft & in_itl),
        ttft_attainment=_mean(in_ttft),
        itl_attainment=_mean(in_itl),
        ttft_p99_ms=_p99(ttft[finished]),
        itl_p99_ms=_p99(itl[finished]),
        preemption_rate=int(np.count_nonzero(records.preemptions[counts])) / max(int(np.count_nonzero(finished)), 1),
        recomputed_tokens=outcome.totals.recomputed_tokens,
        gpu_hours=(outcome.replica_hours - warm_hours) * max(outcome.profile.gpus_per_replica, 1),
        scale_events=outcome.scale_events,
        cap_events=outcome.cap_events,
    )


def _mean(flags: "np.typing.NDArray[np.bool_]") -> float:
    return float(np.mean(flags)) if len(flags) else 1.0


def _p99(values: "np.typing.NDArray[np.float32]") -> float:
    return float(np.percentile(values, 99)) if len(values) else float("nan")


class Memory:
    """Scores by the content they follow from: scenario, part, settings and the text of the code that ran."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(
        self, scenario: Scenario, part: Part, contender: Contender, choice: Choice, draws: Sequence[int] | None = None
    ) -> Path:
        question = {
            "scenario": scenario.identity(),
            "part": part,
            "seeds": [SEEDS[part][draw] for draw in drawn(part, draws)],
            "contender": contender.name,
            "choice": dict(choice),
            "code": digest((*PLANT, *EVALUATION_MODULES, *contender.sources)),
        }
        text = json.dumps(question, sort_keys=True, default=str)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def recall(self, path: Path) -> Score | None:
        if not path.is_file():
            return None
        return Score(**json.loads(path.read_text(encoding="utf-8")))

    def recall_or(self, path: Path, evaluated: Callable[[], Score]) -> Score:
        """The score that is kept, or that of an evaluation, which is kept then."""
        if (score := self.recall(path)) is None:
            self.write_score(path, score := evaluated())
        return score

    def write_score(self, path: Path, score: Score) -> None:
        """Whole or not at all, so that an interrupted run leaves nothing half written."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(score)), encoding="utf-8")
        part.replace(path)


@cache
def digest(modules: tuple[str, ...]) -> str:
    """Digest of the text of modules and packages, by name."""
    text = hashlib.sha256()
    for path in sorted(set(_sources(modules))):
        text.update(path.name.encode() + path.read_bytes())
    return text.hexdigest()


def _sources(modules: Iterable[str]) -> Iterable[Path]:
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(module)
        origin = Path(spec.origin)
        if origin.name != "__init__.py":
            yield origin
        else:
            folder = origin.parent
            yield from (path for path in folder.rglob("*.py") if folder / "policies" not in path.parents)
