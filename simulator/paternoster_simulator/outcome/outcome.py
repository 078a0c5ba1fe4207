"""What a simulation came to: what users saw, what it cost, and what was decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paternoster_simulator.fleet import Totals
from paternoster_simulator.outcome.records import Records, RequestOutcome
from paternoster_simulator.profile import Objective, Profile

PERCENTILES = (50, 90, 95, 99)


@dataclass(slots=True)
class OutcomeSeries:
    """One value a observation."""

    time: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    cap: list[float] = field(default_factory=list)
    """Mean live cap of the serving replicas."""
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    kv_usage: list[float] = field(default_factory=list)
    preemption_rate: list[float] = field(default_factory=list)
    """Distinct requests preempted since the observation before, over those finished."""
    tokens_per_second: list[float] = field(default_factory=list)
    requests_per_second: list[float] = field(default_factory=list)


@dataclass(slots=True)
class SimulationOutcome:
    """The whole of one simulation."""

    profile: Profile
    objective: Objective
    records: Records
    totals: Totals
    seconds: float
    """Virtual time from the first second to the last answer, or to the end of the duration if that is later."""
    replica_hours: float
    """From each pod's creation to its end."""
    scale_events: int
    """Changes of the number of replicas that was asked for."""
    cap_events: int
    """Changes of the live cap that was asked for."""
    budget_events: int
    """Changes of the token budget that was asked for."""
    series: OutcomeSeries
    decisions: list[Mapping[str, Any]]
    """Decisions that changed something, each with its ``time`` in seconds."""

    @property
    def requests(self) -> int:
        return len(self.records)

    @property
    def finished(self) -> int:
        return int(np.count_nonzero(self.records.outcome == RequestOutcome.FINISHED))

    @property
    def lost(self) -> int:
        """Requests without a whole answer."""
        return self.requests - self.finished

    @property
    def slo_attainment(self) -> float:
        """Share of all requests whose time to first token and mean inter-token time stay within the objective.

        A lost request misses it. 1 where there was no request.
        """
        if self.requests == 0:
            return 1.0
        records, objective = self.records, self.objective
        met = (
            (records.outcome == RequestOutcome.FINISHED)
            & (records.ttft * 1000 <= objective.ttft_ms)
            & (records.itl * 1000 <= objective.itl_ms)
        )
        return float(np.mean(met))

    @property
    def preemption_rate(self) -> float:
        """Distinct requests preempted over requests finished."""
        return self.totals.preempted / max(self.totals.finished, 1)

    @property
    def gpu_hours(self) -> float:
        """Replica-hours where the profile has no GPU."""
        return self.replica_hours * max(self.profile.gpus_per_replica, 1)

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.replica_hours * self.profile.usd_per_replica_hour

    @property
    def cost_per_million_tokens(self) -> float | None:
        """US dollars per million tokens generated; None where there is none."""
        tokens = self.totals.generation_tokens
        return self.cost / tokens * 1e6 if tokens else None

    def find_percentiles(self, name: str) -> dict[str, float | None]:
        """Milliseconds of ``ttft``, ``itl`` or ``end_to_end`` over finished requests, and their mean."""
        finished = self.records.outcome == RequestOutcome.FINISHED
        values: NDArray[np.float32] = getattr(self.records, name)[finished] * 1000
        if name == "itl":
            values = values[self.records.output[finished] > 1]
        if len(values) == 0:
            return {"mean": None, **{f"p{share}": None for share in PERCENTILES}}
        points = np.percentile(values, PERCENTILES)
        shares = {f"p{share}": float(point) for share, point in zip(PERCENTILES, points, strict=True)}
        return {"mean": float(np.mean(values)), **shares}

    def to_json(self, *, series: bool = True) -> dict[str, Any]:
        """Write a document of plain numbers, lists and text."""
        outcomes = self.records.outcome
        document: dict[str, Any] = {
            "profile": self.profile.name,
            "profile_source": self.profile.source,
            "objective": self.objective.model_dump(),
            "seconds": self.seconds,
            "requests": self.requests,
            "finished": self.finished,
            "lost": self.lost,
            "lost_by": {
                each.name.lower(): int(np.count_nonzero(outcomes == each))
                for each in RequestOutcome
                if each is not RequestOutcome.FINISHED
            },
            "slo_attainment": self.slo_attainment,
            "ttft_ms": self.find_percentiles("ttft"),
            "itl_ms": self.find_percentiles("itl"),
            "end_to_end_ms": self.find_percentiles("end_to_end"),
            "preemption_rate": self.preemption_rate,
            "preemptions": self.totals.preemptions,
            "recomputed_tokens": self.totals.recomputed_tokens,
            "computed_tokens": self.totals.computed_tokens,
            "generation_tokens": self.totals.generation_tokens,
            "prompt_tokens": self.totals.prompt_tokens,
            "cached_prompt_tokens": self.totals.cached_prompt_tokens,
            "gpu_hours": self.gpu_hours,
            "replica_hours": self.replica_hours,
            "cost": self.cost,
            "cost_per_million_tokens": self.cost_per_million_tokens,
            "scale_events": self.scale_events,
            "cap_events": self.cap_events,
            "budget_events": self.budget_events,
            "decisions": [dict(decision) for decision in self.decisions],
        }
        if series:
            document["series"] = {name: _round_values(getattr(self.series, name)) for name in OutcomeSeries.__slots__}
        return document


def _round_values(values: Sequence[float]) -> list[float]:
    return [round(value, 6) for value in values]
