"""`scripts/check-words` finds what the glossary replaced, and nothing else."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check_words() -> ModuleType:
    loader = SourceFileLoader("check_words", str(ROOT / "scripts/check-words"))
    spec = spec_from_loader("check_words", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def _told(stats): ...", ["the name _told"]),
        ("class Stats:\n    def __init__(self):\n        self.kept = 1", ["the name kept"]),
        ("def report(said=None): ...", ["the name said"]),
        ("for nobody in (): pass", ["the name nobody"]),
        ('"""What the engine told."""', ["'told'"]),
        ("x = 1  # Whoever waits", ["'Whoever'"]),
        ('"""A replica that was put\n    aside."""', ["'put aside'"]),
        ('LIMIT = 1\n"""Of a body."""', ["a docstring that begins in mid-sentence"]),
        ('def read():\n    """As the reference."""', ["a docstring that begins in mid-sentence"]),
        ('def read():\n    """Read lines as the reference does."""', []),
        ("import numpy\nnumpy.take(a)\nreported_stats = told_stats = 1", []),
        ('"""Names like ``told`` are code."""\nx = "nobody"', []),
    ],
)
def test_names_and_prose_of_code_are_checked(check_words: ModuleType, code: str, found: list[str]) -> None:
    banned = check_words.BannedWords.parse(check_words.GLOSSARY.read_text(encoding="utf-8"))
    assert [finding.text for finding in check_words.check_code(Path("a.py"), code, banned)] == found


def test_pages_are_checked_outside_of_code(check_words: ModuleType) -> None:
    banned = check_words.BannedWords.parse(check_words.GLOSSARY.read_text(encoding="utf-8"))
    page = 'Nobody waits.\n```sh\necho nobody\n```\nThe field `nobody`, and "nobody" in quotes.\n'
    assert [finding.line for finding in check_words.check_page(Path("a.md"), page, banned)] == [1]


def test_a_class_name_stands_once(check_words: ModuleType) -> None:
    files = [(Path(f"{letter}.py"), f"class {name}: ...\n") for letter, name in ("aA", "bB", "cA", "dB")]
    found = check_words.check_classes(check_words.find_classes(files), ["B", "C"])
    assert [(finding.path.name, finding.text) for finding in found] == [
        ("c.py", "the class A, as of a.py"),
        ("repeated-classes.txt", "the class C, which stands once"),
    ]
