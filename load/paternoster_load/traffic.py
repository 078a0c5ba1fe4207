"""Which requests a benchmark sends and when, from its flags; before there is a server or an engine to send them to."""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from paternoster_load.results import BenchRequest
from paternoster_traces import workload
from paternoster_traces.prompts import read_text
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceRow, read_trace

DEFAULT_PROMPTS = 100


class Prompts(Protocol):
    """Where prompts come from."""

    def make_prompt(self, index: int, length: int, prefix_blocks: tuple[int, ...] = ()) -> list[int] | str:
        """``length`` tokens for request ``index``; equal leading blocks are a shared prefix."""
        ...


@dataclass(frozen=True)
class Traffic:
    """Rows as the trace or the generator has them, and how they are to be clipped and timed."""

    rows: list[TraceRow]
    text: str
    """What prompts are cut from."""
    options: argparse.Namespace

    @classmethod
    def from_namespace(cls, options: argparse.Namespace) -> "Traffic":
        """Read trace and text and check the flags; raises :class:`ValueError`."""
        for name in ("num_prompts", "duration"):
            value = getattr(options, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name.replace('_', '-')} is {value}: must be above 0")
        if options.temperature < 0:
            raise ValueError(f"temperature is {options.temperature}: must be at least 0")
        traffic = cls(_load_rows(options), read_text(options.prompt_text), options)
        traffic.length_limits(None)
        return traffic

    @property
    def source(self) -> str:
        return str(self.options.trace or "synthetic")

    def length_limits(self, context: int | None) -> workload.Limits:
        """Bounds of lengths for a server with ``context`` tokens, None where it does not say."""
        options = self.options
        output = options.max_output_tokens
        if output is None and context is not None:
            output = max(context // 2, options.min_output_tokens)
        return workload.Limits(options.max_prompt_tokens, output, options.min_output_tokens, context)

    def list_timed(self, rate: float | None, context: int | None = None) -> list[TraceRow]:
        """Clipped rows that arrive at ``rate`` a second, or as recorded; raises :class:`ValueError`."""
        options, limits = self.options, self.length_limits(context)
        rows = [limits.clip_row(row) for row in self.rows]
        if rate is not None:
            rows = workload.retime_rows(rows, rate=rate, burstiness=options.burstiness, seed=options.seed)
        if options.duration and not rows[-1].arrival_s and not options.max_concurrency:
            raise ValueError("duration with requests that all arrive at once: needs max-concurrency to pace them")
        return rows

    def build_requests(self, rows: Iterable[TraceRow], prompts: Prompts, first: int = 0) -> Iterator[BenchRequest]:
        """Requests numbered from ``first``; the number decides which part of the text a prompt is."""
        for index, row in enumerate(rows, start=first):
            yield BenchRequest(
                index,
                prompts.make_prompt(index, row.prompt_tokens, row.prefix_blocks),
                row.output_tokens,
                row.arrival_s,
            )

    def warm_up(self, rows: list[TraceRow], prompts: Prompts, count: int) -> Iterator[BenchRequest]:
        """The first ``count`` rows all at once, with prompts that are used nowhere else."""
        lap = workload.repeat_rows([replace(row, arrival_s=0.0) for row in rows])
        return self.build_requests((row for row, _ in zip(lap, range(count), strict=False)), prompts, first=-count)


def _load_rows(options: argparse.Namespace) -> list[TraceRow]:
    count, seed = options.num_prompts, options.seed
    if not options.trace:
        return generate_rows(count or DEFAULT_PROMPTS, seed=seed)
    rows = read_trace(options.trace)
    count = count or len(rows)
    if options.sample:
        return workload.sample_rows(rows, count, seed=seed)
    if count > len(rows):
        raise ValueError(f"num-prompts is {count}: must be at most {len(rows)}, the rows of {options.trace}")
    return rows[:count]
