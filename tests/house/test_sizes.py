"""Files can be read in one sitting, and folders can be surveyed."""

import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400
MAX_FILES = 15
"""Python files of a folder, beside its ``__init__.py``."""


def long_files(lines: dict[str, int]) -> list[str]:
    return [f"{path} has {count} lines: at most {MAX_LINES}" for path, count in lines.items() if count > MAX_LINES]


def full_folders(paths: Iterable[str]) -> list[str]:
    files = Counter(str(Path(path).parent) for path in paths if Path(path).name != "__init__.py")
    return [f"{folder} has {count} files: at most {MAX_FILES}" for folder, count in files.items() if count > MAX_FILES]


def python_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for path in listed.stdout.splitlines() if (ROOT / path).exists()]


def test_no_file_is_long() -> None:
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert len(lines) > 1000
    assert long_files(lines) == []


def test_no_folder_is_full() -> None:
    assert full_folders(python_files()) == []


def test_too_much_is_reported() -> None:
    assert long_files({"a.py": 400, "b.py": 401}) == ["b.py has 401 lines: at most 400"]
    assert full_folders(f"a/{i}.py" for i in range(15)) == []
    assert full_folders(f"a/{i}.py" for i in range(16)) == ["a has 16 files: at most 15"]
