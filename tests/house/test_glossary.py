"""The glossary names what is in the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\|[^|]+\|[^|]+\|([^|]*)\|[^|]*\|$", re.MULTILINE)


def names_in_code(glossary: str) -> list[str]:
    """The names in backticks of the third column."""
    return [name for cell in ROW.findall(glossary) for name in re.findall(r"`(\w+)`", cell)]


def missing_names(glossary: str, code: str) -> list[str]:
    defined = set(re.findall(r"\w+", code))
    return [name for name in names_in_code(glossary) if name not in defined]


def test_every_name_of_the_glossary_is_in_the_code() -> None:
    rooms = ("common", "engine", "operator", "gateway", "load", "simulator")
    files = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    assert len(names_in_code(glossary)) > 50
    assert missing_names(glossary, code) == []


def test_a_name_that_is_gone_is_reported() -> None:
    row = "| block pool | all blocks | `BlockPool`, `Gone` | |\n"
    assert missing_names(row, "class BlockPool:\n") == ["Gone"]
