"""Every experiment can be found, and lists its flags."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    # From elsewhere and with a bare path: only the folder that is run says where modules are.
    command = [sys.executable, "-P", str(BENCHMARKS), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


RUNNERS = re.findall(r"^  (\S+) +\S", call().stdout, re.MULTILINE)


def test_all_that_can_be_run_are_listed_with_what_they_answer() -> None:
    files = [file for file in BENCHMARKS.glob("*/**/*.py") if "def main() -> int:" in file.read_text()]
    # Those with a guard are run by path, in a peer's own environment.
    modules = [file.relative_to(BENCHMARKS).with_suffix("") for file in files if "__main__" not in file.read_text()]
    runners = {".".join(module.parts) for module in modules if "tests" not in module.parts}
    assert set(RUNNERS) == runners
    assert len(RUNNERS) == len(runners) > 10


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_runner_tells_its_flags(
    runner: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [runner, "--help"])
    with pytest.raises(SystemExit) as stopped:
        import_module(runner).main()
    assert stopped.value.code == 0
    assert f"usage: {runner}" in capsys.readouterr().out


def test_a_runner_is_started_by_its_name() -> None:
    done = call("scheduling.gains", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: benchmarks scheduling.gains")


def test_an_unknown_runner_is_answered_with_those_there_are() -> None:
    done = call("luck")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "runner is 'luck': must be one of clients.agents, clients.run" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_page_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)`", (BENCHMARKS / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(RUNNERS)
