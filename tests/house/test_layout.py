"""The two traps of the layout: rooms that would shadow other packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("common", "operator", "engine", "kernels", "gateway", "batch", "load", "simulator")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_a_folder_and_not_a_package(room: str) -> None:
    assert (ROOT / room).is_dir()
    assert not (ROOT / room / "__init__.py").exists(), f"{room}/__init__.py would shadow another package named {room}"


def test_scripts_have_one_style_of_names() -> None:
    """Commands have dashes and no suffix; what they import has underscores, as Python wants."""
    listed = {path.name: os.access(path, os.X_OK) for path in (ROOT / "scripts").iterdir() if path.is_file()}
    assert [name for name, runs in listed.items() if runs and not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []
    assert [name for name, runs in listed.items() if not runs and "." not in name] == []


def test_import_operator_in_the_root_is_the_standard_library() -> None:
    code = "import operator; print(operator.__file__); print(operator.itemgetter(0)([7]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    where, seven = done.stdout.split()
    assert seven == "7"
    assert not Path(where).is_relative_to(ROOT / "operator")


def test_the_root_is_not_on_the_path() -> None:
    """Otherwise ``import kernels`` finds our folder, and Hugging Face's check for its own package trips over it."""
    assert str(ROOT) not in [str(Path(entry).resolve()) for entry in sys.path if entry]
