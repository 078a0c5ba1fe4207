"""Tests import each other by full names, from ``tests`` on, so that no folder of theirs is on the path."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def imported_packages(code: str) -> set[str]:
    """The first part of each imported name; a dot for a relative import."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            found.add("." if node.level else (node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
    return found


def test_tests_import_by_full_names() -> None:
    own = {path.stem for path in TESTS.rglob("*.py")}
    faults = {
        str(path.relative_to(ROOT)): names
        for folder in (TESTS, ROOT / "e2e", ROOT / "benchmarks")
        for path in folder.rglob("*.py")
        if (names := {each for each in imported_packages(path.read_text()) if each == "." or _is_own(each, own)})
    }
    assert faults == {}


def _is_own(name: str, own: set[str]) -> bool:
    return name in own and name not in sys.stdlib_module_names and find_spec(name) is None


def test_a_relative_import_is_seen() -> None:
    assert imported_packages("from .world import World\nfrom a.b import c\nimport d.e\n") == {".", "a", "d"}
