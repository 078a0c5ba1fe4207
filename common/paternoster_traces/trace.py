"""Request traces: when requests came and how long they were, read from the public formats.

A reader is chosen by the file's columns, not by its name:

========================  ====================================================================================
simplified CSV            ``arrival_s, prompt_tokens, output_tokens[, prefix_block_ids_512]``
Azure LLM inference       ``TIMESTAMP, ContextTokens, GeneratedTokens`` (github.com/Azure/AzurePublicDataset)
BurstGPT                  ``Timestamp, Request tokens, Response tokens, ...`` (github.com/HPMLL/BurstGPT)
Mooncake JSON lines       ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` (FAST'25)
========================  ====================================================================================
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

PREFIX_BLOCK_TOKENS = 512
"""Prompt tokens that one prefix block id stands for, in Mooncake's traces and in the simplified form."""


class TraceError(ValueError):
    """A trace file that cannot be read; the text names the file and, where there is one, line and column."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace."""

    arrival_s: float
    """Seconds after the first row."""
    prompt_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()
    """One id for each :data:`PREFIX_BLOCK_TOKENS` of the prompt; equal leading ids are a shared prefix."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A value and where it stands, so that every complaint can say so."""

    path: Path
    line: int
    column: str
    text: Any

    def error(self, allowed: str) -> TraceError:
        return TraceError(f"{self.path}: line {self.line}, column {self.column}: {self.text!r}: must be {allowed}")

    def read_number(self) -> float:
        try:
            value = float(self.text)
        except (TypeError, ValueError):
            raise self.error("a number") from None
        if not 0 <= value < float("inf"):
            raise self.error("a finite number, at least 0")
        return value

    def read_tokens(self) -> int:
        value = self.read_number()
        if value != int(value):
            raise self.error("a whole number of tokens")
        return int(value)

    def read_timestamp(self) -> float:
        try:
            return datetime.fromisoformat(str(self.text).strip()).timestamp()
        except ValueError:
            raise self.error("a date and time such as 2023-11-16 18:15:46.6805900") from None

    def read_ids(self) -> tuple[int, ...]:
        """Block ids: a list of integers, or text such as ``0-3 7`` with runs written first-last."""
        try:
            if isinstance(self.text, list):
                return tuple(int(i) for i in self.text)
            runs = [part.partition("-") for part in (self.text or "").split()]
            return tuple(i for first, _, last in runs for i in range(int(first), int(last or first) + 1))
        except (TypeError, ValueError):
            raise self.error("block ids such as 0-13 27") from None


@dataclass(frozen=True, slots=True)
class _Format:
    """Which columns hold what, and how the time column is read."""

    time: str
    prompt: str
    output: str
    prefix: str | None = None
    read_time: Callable[[_Cell], float] = _Cell.read_number
    time_unit: float = 1.0

    @property
    def required(self) -> tuple[str, str, str]:
        return self.time, self.prompt, self.output


FORMATS: Mapping[str, _Format] = {
    "simplified": _Format("arrival_s", "prompt_tokens", "output_tokens", prefix="prefix_block_ids_512"),
    "Azure": _Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", read_time=_Cell.read_timestamp),
    "BurstGPT": _Format("Timestamp", "Request tokens", "Response tokens"),
    "Mooncake": _Format("timestamp", "input_length", "output_length", prefix="hash_ids", time_unit=0.001),
}


def read_trace(path: str | Path) -> list[TraceRow]:
    """All rows of a trace file in order of arrival, the first at 0 s.

    Rows that ask for no output are left out: traces log failed requests that way. Raises :class:`TraceError`.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is not a text file in UTF-8") from None
    records = _json_records(path, text) if text.lstrip().startswith("{") else _csv_records(path, text)
    rows = [row for row in _read_rows(path, records) if row.output_tokens > 0 and row.prompt_tokens > 0]
    if not rows:
        raise TraceError(f"{path}: has no row with a prompt and an output")
    rows.sort(key=lambda row: row.arrival_s)
    start = rows[0].arrival_s
    return [replace(row, arrival_s=row.arrival_s - start) for row in rows]


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    for record in reader:
        yield reader.line_num, record


def _json_records(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, record in enumerate(text.splitlines(), start=1):
        if not record.strip():
            continue
        try:
            value = json.loads(record)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}: line {line}: is not JSON: {error.msg}") from None
        if not isinstance(value, dict):
            raise TraceError(f"{path}: line {line}: must be a JSON object, not {type(value).__name__}")
        yield line, value


def _read_rows(path: Path, records: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[TraceRow]:
    chosen: _Format | None = None
    for line, record in records:
        if chosen is None:
            chosen = _format_of(path, record)

        def get_cell(column: str, line: int = line, record: Mapping[str, Any] = record) -> _Cell:
            if record.get(column) is None:
                raise TraceError(f"{path}: line {line}, column {column}: is missing")
            return _Cell(path, line, column, record[column])

        yield TraceRow(
            arrival_s=chosen.read_time(get_cell(chosen.time)) * chosen.time_unit,
            prompt_tokens=get_cell(chosen.prompt).read_tokens(),
            output_tokens=get_cell(chosen.output).read_tokens(),
            prefix_blocks=get_cell(chosen.prefix).read_ids() if chosen.prefix and record.get(chosen.prefix) else (),
        )


def _format_of(path: Path, record: Mapping[str, Any]) -> _Format:
    for trace_format in FORMATS.values():
        if all(column in record for column in trace_format.required):
            return trace_format
    expected = "; or ".join(", ".join(trace_format.required) for trace_format in FORMATS.values())
    found = ", ".join(str(column) for column in record)
    raise TraceError(f"{path}: has the columns {found}: must have {expected}")
