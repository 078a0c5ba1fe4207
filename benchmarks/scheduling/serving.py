"""Requests through a virtual engine, and what their users saw."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.stats import Counters
from scheduling.virtual_engine import Machine, VirtualEngine

EMPTY_STEP_PAUSE = 0.002
"""Seconds until the next look after a step that computed nothing, as when a batch is being put off."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that is to come."""

    time: float
    """Seconds."""
    prompt: Sequence[int]
    output_tokens: int
    answer: Sequence[int] = ()
    """What it is to say; zeros where this ends."""
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    """Counted from its arrival."""


@dataclass(slots=True)
class Record:
    """What became of one request. Times are virtual seconds."""

    arrival: Arrival
    times: list[float] = field(default_factory=list)
    """When each of its tokens came."""
    end: FinishReason | None = None
    """None where it was refused."""
    preemptions: int = 0

    @property
    def completed(self) -> bool:
        return self.end is FinishReason.LENGTH

    @property
    def ttft(self) -> float:
        return self.times[0] - self.arrival.time

    @property
    def latency(self) -> float:
        return self.times[-1] - self.arrival.time

    @property
    def itls(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.times)]


@dataclass(frozen=True, slots=True)
class Served:
    """One run."""

    records: list[Record]
    """In order of arrival."""
    seconds: float
    sampling_steps: int
    """Steps that sampled at least one token."""
    late_prefills: int
    counters: Counters

    @property
    def output_tokens_per_second(self) -> float:
        return self.counters.generation_tokens / self.seconds

    @property
    def ends(self) -> "Counter[FinishReason | None]":
        return Counter(record.end for record in self.records)

    def of(self, chosen: Callable[[Arrival], bool]) -> list[Record]:
        """Completed requests among the chosen."""
        return [record for record in self.records if record.completed and chosen(record.arrival)]

    def goodput(self, ttft: float, itl: float) -> float:
        """Requests a second that completed with a first token within ``ttft`` and a mean gap within ``itl`` seconds."""
        good = [
            record
            for record in self.records
            if record.completed and record.ttft <= ttft and float(np.mean(record.itls or [0.0])) <= itl
        ]
        return len(good) / self.seconds


def percentile(values: Iterable[float], share: float) -> float:
    """The ``share``-th percentile, 0..100; raises :class:`ValueError` for no values."""
    found = list(values)
    if not found:
        raise ValueError("percentile: of no values")
    return float(np.percentile(found, share))


def serve(machine: Machine, arrivals: Sequence[Arrival], *, on_end: Callable[[], object] = lambda: None) -> Served:
    """Take each request in at its time and step until all have ended. ``arrivals`` must be in order of time."""
    records = [Record(arrival) for arrival in arrivals]
    by_id = {str(number): record for number, record in enumerate(records)}
    virtual = VirtualEngine(machine, {name: record.arrival.answer for name, record in by_id.items()})
    clock, scheduler = virtual.clock, virtual.scheduler
    coming = iter(by_id.items())
    following = next(coming, None)
    while following is not None or scheduler.has_work:
        while following is not None and following[1].arrival.time <= clock.now:
            _add(virtual, *following, on_end)
            following = next(coming, None)
        if not scheduler.has_work:
            if following is not None:
                clock.now = following[1].arrival.time
            continue
        before = scheduler.counters.computed_tokens
        outputs = virtual.engine.step()
        for output in outputs:
            record = by_id[output.request.request_id]
            if output.token is not None:
                record.times.append(clock.now)
            if output.finish_reason is not None:
                record.end, record.preemptions = output.finish_reason, output.request.num_preemptions
                on_end()
        if not outputs and scheduler.counters.computed_tokens == before:
            clock.advance(EMPTY_STEP_PAUSE)
    runner = virtual.runner
    return Served(records, clock.now, runner.sampling_steps, runner.late_prefills, scheduler.counters)


def _add(virtual: VirtualEngine, name: str, record: Record, on_end: Callable[[], object]) -> None:
    arrival = record.arrival
    request = Request(
        RequestSpec(
            name,
            list(arrival.prompt),
            SamplingParams(max_tokens=arrival.output_tokens, temperature=0.0, ignore_eos=True),
            arrival.time,
            tenant=arrival.tenant,
            priority=arrival.priority,
            deadline=None if arrival.deadline_s is None else arrival.time + arrival.deadline_s,
        )
    )
    try:
        virtual.scheduler.add(request)
    except AdmissionError:
        on_end()
