"""The CRD's printer columns as a table."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from paternoster_operator.api.columns import COLUMNS, Column

NAMESPACE = Column("Namespace", ".metadata.namespace")
NAME = Column("Name", ".metadata.name")


def columns_table(objects: Sequence[Mapping[str, Any]], *, wide: bool, namespaces: bool = False) -> Table:
    """The table of ``kubectl get``: the name, after its namespace if ``namespaces``, then the printer columns."""
    shown = [NAMESPACE] * namespaces + [NAME] + [column for column in COLUMNS if wide or column.priority == 0]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in shown:
        table.add_column(column.name.upper(), no_wrap=True)
    for document in objects:
        table.add_row(*(format_cell(document, column) for column in shown))
    return table


def format_cell(document: Mapping[str, Any], column: Column) -> str:
    """One printed value; empty where the object has none."""
    value = _find_value(document, column.path)
    if value is None:
        return ""
    return _format_since(str(value)) if column.type == "date" else str(value)


def _find_value(document: Any, path: str) -> Any:
    """The JSONPath of a printer column: fields, and one filter on a condition's type."""
    value = document
    for part in path.removeprefix(".").replace('[?(@.type=="', ".=").replace('")]', "").split("."):
        if part.startswith("="):
            value = next((item for item in value or [] if item.get("type") == part[1:]), None)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def format_age(seconds: int) -> str:
    """In the largest unit that fits, and below ten of it in the next one too."""
    for size, unit, small, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            whole, rest = seconds // size, seconds % size // small
            return f"{whole}{unit}{rest}{below}" if whole < 10 and rest else f"{whole}{unit}"
    return f"{seconds}s"


def _format_since(timestamp: str) -> str:
    return format_age(int((datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()))
