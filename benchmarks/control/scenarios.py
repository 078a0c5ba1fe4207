"""What the fleets are put through: a trace or a pattern, on one kind of machine, within bounds.

Every scenario has two parts that share no traffic: policies are tuned on one and judged on the other. A trace is cut
into halves; a pattern is drawn with another seed, and for the part that judges with three.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from heapq import merge
from pathlib import Path
from typing import Any, Literal

from control.workloads import CODE, REASONING, SHORT_ANSWERS, thickened
from paternoster_simulator.arrivals import (
    Pattern,
    constant_rate,
    day_night,
    generate_requests,
    rate_bursts,
    rate_ramp,
    rate_step,
)
from paternoster_simulator.profile import Profile, load_profile
from paternoster_traces.synthetic import AZURE_CONVERSATION, Workload
from paternoster_traces.trace import TraceRow, read_trace
from paternoster_traces.workload import Limits

Part = Literal["tune", "test"]
SEEDS: Mapping[Part, tuple[int, ...]] = {"tune": (1,), "test": (2, 5, 8)}
"""Seeds of each draw of a part: what one of them comes to may be luck."""
BESIDE = 2
"""Difference of the seeds of two kinds of traffic that come at the same time."""


@dataclass(frozen=True)
class Traffic:
    """Where requests come from."""

    trace: str | None = None
    """File in the folder of traces; None draws them."""
    copies: int = 1
    """How many times the trace's traffic."""
    pattern: Callable[[float], Pattern] | None = None
    """Rate over time, from the duration in seconds."""
    workload: Workload = AZURE_CONVERSATION
    limits: Limits = field(default_factory=lambda: Limits(max_total=8192))
    beside: "Traffic | None" = None
    """Other requests at the same time."""

    def requests(self, duration: float, seed: int) -> Iterator[TraceRow]:
        """What is drawn, in order of arrival; not for traces."""
        assert self.pattern is not None, "traffic has neither a trace nor a pattern"
        pattern = self.pattern(duration)
        rows = generate_requests(pattern, duration=duration, seed=seed, limits=self.limits, workload=self.workload)
        if self.beside is None:
            return rows
        others = self.beside.requests(duration, seed + BESIDE)
        return merge(rows, others, key=lambda row: row.arrival_s)

    def kinds(self) -> Iterator["Traffic"]:
        """Itself and what comes beside it."""
        yield self
        if self.beside is not None:
            yield from self.beside.kinds()


@dataclass(frozen=True)
class Scenario:
    """One row of the comparison."""

    name: str
    what: str
    profile_name: str
    traffic: Traffic
    duration: float
    """Seconds of each part, the warm-up included."""
    start_replicas: int
    autoscaling: Mapping[str, Any]
    engine: Mapping[str, Any] = field(default_factory=dict)
    slo: Mapping[str, Any] = field(default_factory=dict)
    """Where the users expect anything else than the profile says."""
    prefix_cache: bool = False
    kv_blocks: int | None = None
    """Where less memory is left for the pool than the profile has."""
    warm_seconds: float = 300.0
    """At the beginning, when policies only look."""

    @property
    def profile(self) -> Profile:
        profile = load_profile(self.profile_name)
        return profile if self.kv_blocks is None else profile.model_copy(update={"kv_blocks": self.kv_blocks})

    @property
    def document(self) -> dict[str, Any]:
        """The fleet's spec as in a manifest; the law's defaults with both loops on."""
        objective = self.profile.objective
        users = {"ttftP95Milliseconds": round(objective.ttft_ms), "itlP95Milliseconds": round(objective.itl_ms)}
        return {
            "model": {"source": "file:///models/model.gguf"},
            "engine": dict(self.engine),
            "autoscaling": dict(self.autoscaling),
            "concurrency": {"mode": "Auto"},
            # As under the other systems, which hand nothing over.
            "drain": {"mode": "Finish"},
            "slo": {**users, **self.slo},
        }

    def requests(self, part: Part, traces: Path | None, draw: int = 0) -> Iterator[TraceRow]:
        """The traffic of one part, from second 0. A trace that is not thickened is the same in every draw."""
        traffic = self.traffic
        if traffic.trace is None:
            return traffic.requests(self.duration, SEEDS[part][draw])
        assert traces is not None, f"{self.name} needs the folder of traces"
        begin = 0.0 if part == "tune" else self.duration
        return _cut(_trace(traces / traffic.trace, traffic.copies, draw), begin, self.duration, traffic.limits)

    def missing(self, traces: Path | None) -> str | None:
        """Why it cannot run here, or None."""
        if self.traffic.trace is None:
            return None
        if traces is None:
            return f"needs {self.traffic.trace}: name its folder with --traces"
        return None if (traces / self.traffic.trace).is_file() else f"{traces / self.traffic.trace} is not there"

    def identity(self) -> dict[str, Any]:
        """Everything that decides what an evaluation of it comes to, but for the code."""
        own_fields = {name: value for name, value in asdict(replace(self, traffic=Traffic())).items() if name != "what"}
        kinds = list(self.traffic.kinds())
        patterns = [kind.pattern(self.duration) for kind in kinds if kind.pattern is not None]
        return {
            **own_fields,
            "traffic": [asdict(replace(kind, pattern=None, beside=None)) for kind in kinds],
            "rates": [[pattern.rate(self.duration * i / 100) for i in range(100)] for pattern in patterns],
            "hardware": self.profile.model_dump(),
        }


@cache
def _trace(path: Path, copies: int, seed: int) -> tuple[TraceRow, ...]:
    return tuple(thickened(read_trace(path), copies, seed=seed))


def _cut(rows: tuple[TraceRow, ...], begin: float, duration: float, limits: Limits) -> Iterator[TraceRow]:
    for row in rows:
        if begin <= row.arrival_s < begin + duration:
            yield replace(limits.clip_row(row), arrival_s=row.arrival_s - begin)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="azure",
            what="Azure conversation trace of November 2023, twice its traffic, in halves of 29 minutes",
            profile_name="llama-3-70b-h200x2",
            traffic=Traffic(trace="azure_llm_2023_conv.csv", copies=2),
            duration=1740.0,
            start_replicas=5,
            autoscaling={"minReplicas": 2, "maxReplicas": 12},
            engine={"maxBatchedTokens": 2048},
        ),
        Scenario(
            name="mooncake",
            what="Mooncake conversation trace (FAST '25) with its shared prefixes, in halves of 29 minutes",
            profile_name="llama-3-70b-h200x2",
            traffic=Traffic(trace="mooncake_fast25_conversation.csv", limits=Limits(max_total=16_384)),
            duration=1740.0,
            start_replicas=6,
            autoscaling={"minReplicas": 2, "maxReplicas": 12},
            engine={"maxModelLen": 16_384, "maxBatchedTokens": 2048},
            slo={"ttftP95Milliseconds": 10_000, "itlP95Milliseconds": 300},
            prefix_cache=True,
        ),
        Scenario(
            name="bursts",
            what="short questions with long answers; for two of every ten minutes four times as many, from the 7th on",
            profile_name="llama-3-8b-h100",
            traffic=Traffic(
                # No burst falls into the warm-up, when no replica may answer it.
                pattern=lambda _: rate_bursts(5.0, period=600.0, first=420.0),
                workload=REASONING,
            ),
            duration=1800.0,
            start_replicas=3,
            autoscaling={"minReplicas": 2, "maxReplicas": 12},
        ),
        Scenario(
            name="day-night",
            what="conversation; a day of 40 minutes, ten times as many at its height as at night",
            profile_name="llama-3-70b-h200x2",
            traffic=Traffic(pattern=lambda t: day_night(11.0, period=2400.0, depth=0.82)),
            duration=2400.0,
            start_replicas=2,
            autoscaling={"minReplicas": 1, "maxReplicas": 12},
            engine={"maxBatchedTokens": 2048},
        ),
        Scenario(
            name="step",
            what="short questions with long answers; four times as many from the tenth minute on",
            profile_name="llama-3-8b-h100",
            traffic=Traffic(pattern=lambda _: rate_step(3.0, at=600.0, factor=4.0), workload=REASONING),
            duration=1500.0,
            start_replicas=2,
            autoscaling={"minReplicas": 1, "maxReplicas": 12},
        ),
        Scenario(
            name="thinking",
            what="short answers give way to long ones, as where a thinking mode is switched on; a third of the KV pool",
            profile_name="llama-3-70b-h200x2",
            traffic=Traffic(
                pattern=lambda _: rate_ramp(16.0, begin=600.0, until=1200.0, factor=0.0),
                workload=SHORT_ANSWERS,
                beside=Traffic(
                    pattern=lambda _: rate_ramp(0.25, begin=600.0, until=1200.0, factor=10.0), workload=REASONING
                ),
            ),
            duration=1800.0,
            start_replicas=4,
            autoscaling={"minReplicas": 1, "maxReplicas": 12},
            engine={"maxBatchedTokens": 2048},
            kv_blocks=4000,
        ),
        Scenario(
            name="code",
            what="long prompts, short answers, as of code completion; one of every five minutes ten times as many",
            profile_name="llama-3-70b-h200x2",
            traffic=Traffic(pattern=lambda _: rate_bursts(1.5, period=300.0, factor=10.0, first=120.0), workload=CODE),
            duration=1800.0,
            start_replicas=6,
            autoscaling={"minReplicas": 2, "maxReplicas": 16},
            engine={"maxBatchedTokens": 2048},
            slo={"ttftP95Milliseconds": 5000, "itlP95Milliseconds": 200},
        ),
        Scenario(
            name="quiet",
            what="conversation, one request in 15 seconds; started with four replicas, where two are the fewest",
            profile_name="llama-3-8b-h100",
            traffic=Traffic(pattern=lambda _: constant_rate(1 / 15)),
            duration=1800.0,
            start_replicas=4,
            autoscaling={"minReplicas": 2, "maxReplicas": 12},
        ),
    )
}

QUICK = {
    "bursts": replace(
        SCENARIOS["bursts"],
        duration=480.0,
        warm_seconds=60.0,
        traffic=replace(SCENARIOS["bursts"].traffic, pattern=lambda _: rate_bursts(3.0, period=240.0)),
    ),
    "step": replace(
        SCENARIOS["step"],
        duration=480.0,
        warm_seconds=60.0,
        traffic=replace(SCENARIOS["step"].traffic, pattern=lambda _: rate_step(3.0, at=180.0)),
    ),
}
"""Small enough to see in minutes that everything works; too short to judge a policy by."""
