"""Results of a runner: a file for programs, Markdown for the pages, and the figures that many runners print."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any


def write_json(file: Path | None, document: Any) -> None:
    """Data classes become objects, and what JSON does not have its text; without a file nothing is written."""
    if file is not None:
        file.write_text(json.dumps(document, indent=1, default=_to_document) + "\n", encoding="utf-8")


def _to_document(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], rule: Sequence[str] = ()) -> str:
    """``rule``: the alignment of each column where it is not to the left, as Markdown writes it."""
    return "\n".join(map(markdown_line, (columns, rule or ["---"] * len(columns), *rows)))


def markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median, and least to most."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def divide_turns(values: Sequence[float], reference: Sequence[float]) -> list[float]:
    """The ratio in each turn."""
    return [value / other for value, other in zip(values, reference, strict=True)]


def without_repeats(values: Sequence[int]) -> list[int]:
    """Values as they followed one another."""
    return [*values[:1], *(after for before, after in pairwise(values) if after != before)]
