"""A table of results, as Markdown for the pages and as a document for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.results import markdown_table

Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    note: str
    """What was run, in a sentence or two."""
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells: must be {len(self.columns)}")

    def markdown(self) -> str:
        rows = [list(map(shown, row)) for row in self.rows]
        return f"### {self.title}\n\n{self.note}\n\n{markdown_table(self.columns, rows)}"

    def document(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "note": self.note,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }


def shown(cell: Cell) -> str:
    """Three significant digits, thousands apart; text as it is."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if abs(cell) < 10 else f"{cell:.1f}"
