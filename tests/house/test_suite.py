"""The suite itself: a newcomer who meets a new counterexample reads it, and what to do with it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_numbers_are_small(number):
    assert number < 100
"""


def test_a_failed_property_prints_its_input_and_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "test_property.py"
    file.write_text(PROPERTY)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, str(file)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "number=100" in done.stdout
    assert "What to do with a found example" in done.stdout
    assert "@example(...)" in done.stdout


async def test_clients_of_the_tests_wait_long_on_a_busy_machine() -> None:
    with httpx.Client() as client:
        assert client.timeout == httpx.Timeout(60)
    async with httpx.AsyncClient() as client_of_loops:
        assert client_of_loops.timeout == httpx.Timeout(60)


def test_what_ci_compiles_before_the_tests_is_chosen_by_names_of_tests() -> None:
    (chosen,) = re.findall(r'-k "([^"]+)"', (ROOT / ".ci/run").read_text())
    sources = [file.read_text() for file in (ROOT / "tests").glob("**/test_*.py")]
    assert [name for name in chosen.split(" or ") if not any(f"def {name}(" in source for source in sources)] == []
