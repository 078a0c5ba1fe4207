"""From trace rows to the requests of one run: which rows, how long at most, and when."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paternoster_traces.synthetic import draw_arrivals
from paternoster_traces.trace import TraceRow

STANDARD_REQUESTS = 64
STANDARD_PROMPT = 512
STANDARD_OUTPUT = (8, 256)
"""The standard small workload: 64 rows sampled with seed 0, prompts of 1..512 and outputs of 8..256 tokens."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that lengths are clipped to, in tokens, both ends included. None: no upper bound."""

    max_prompt: int | None = None
    max_output: int | None = None
    min_output: int = 1
    max_total: int | None = None
    """Prompt plus output: the server's context. The prompt gives way, but keeps at least a token."""

    def __post_init__(self) -> None:
        for name in ("max_prompt", "max_output", "min_output"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')}-tokens is {value}: must be at least 1")
        if self.max_output is not None and self.max_output < self.min_output:
            raise ValueError(f"max-output-tokens is {self.max_output}: must be at least {self.min_output}, the minimum")
        if self.max_total is not None and self.max_total <= self.min_output:
            raise ValueError(f"the server's context is {self.max_total}: must be above {self.min_output} output tokens")

    def clip_row(self, row: TraceRow) -> TraceRow:
        output = max(row.output_tokens, self.min_output)
        prompt = max(row.prompt_tokens, 1)
        if self.max_output is not None:
            output = min(output, self.max_output)
        if self.max_prompt is not None:
            prompt = min(prompt, self.max_prompt)
        if self.max_total is not None:
            output = min(output, self.max_total - 1)
            prompt = min(prompt, self.max_total - output)
        return replace(row, prompt_tokens=prompt, output_tokens=output)


def sample_rows(rows: Sequence[TraceRow], count: int, *, seed: int) -> list[TraceRow]:
    """``count`` rows at random without repetition, in the order drawn, all arriving at 0 s."""
    if count > len(rows):
        raise ValueError(f"num-prompts is {count}: must be at most {len(rows)}, the rows of the trace, to sample them")
    chosen = random.Random(seed).sample(range(len(rows)), count)
    return [replace(rows[i], arrival_s=0.0) for i in chosen]


def standardize_rows(rows: Sequence[TraceRow]) -> list[TraceRow]:
    """The standard small workload of the benchmarks out of a trace's rows."""
    low, high = STANDARD_OUTPUT
    limits = Limits(max_prompt=STANDARD_PROMPT, min_output=low, max_output=high)
    return [limits.clip_row(row) for row in sample_rows(rows, STANDARD_REQUESTS, seed=0)]


def repeat_rows(rows: Sequence[TraceRow]) -> Iterator[TraceRow]:
    """The rows over and over, each lap following the one before by the mean gap."""
    span = rows[-1].arrival_s
    lap = span + (span / (len(rows) - 1) if len(rows) > 1 else 0.0)
    turn = 0
    while True:
        for row in rows:
            yield replace(row, arrival_s=row.arrival_s + turn * lap)
        turn += 1


def retime_rows(rows: Sequence[TraceRow], *, rate: float, burstiness: float, seed: int) -> list[TraceRow]:
    """Let ``rows`` arrive at ``rate`` a second (gamma gaps; burstiness 1 is Poisson), or all at once if infinite."""
    if rate <= 0:
        raise ValueError(f"request-rate is {rate}: must be above 0, or inf")
    if burstiness <= 0:
        raise ValueError(f"burstiness is {burstiness}: must be above 0; 1 is a Poisson process")
    times = draw_arrivals(len(rows), rate=rate, burstiness=burstiness, rng=np.random.default_rng(seed))
    return [replace(row, arrival_s=float(time)) for row, time in zip(rows, times, strict=True)]
