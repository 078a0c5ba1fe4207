"""The command line, as a person meets it."""

import subprocess
import sys
from pathlib import Path

import pytest

from control import compare

BENCHMARKS = Path(__file__).parents[2]


def call(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS), "control.compare", "--results", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "0"), "--budget: is 0: must be at least 1"),
        (("--workers", "-1"), "--workers: is -1: must be at least 1"),
        (("--policies", "magic"), "invalid choice: 'magic'"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: tuple[str, str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", *arguments])
    with pytest.raises(SystemExit) as stopped:
        compare.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_traces_their_scenarios_are_left_out_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "--results", str(tmp_path), "--scenarios", "azure", "mooncake"])
    assert compare.main() == 1
    errors = capsys.readouterr().err
    assert "azure is left out: needs azure_llm_2023_conv.csv: name its folder with --traces" in errors
    assert "mooncake is left out" in errors


def test_one_policy_with_its_defaults_is_one_row(tmp_path: Path) -> None:
    arguments = ("--quick", "--budget", "1", "--policies", "wva", "--scenarios", "bursts")
    done = call(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| wva")]
    assert len(rows) == 1
    assert (tmp_path / "control.md").read_text() == done.stdout
    assert len(list((tmp_path / "evaluations").iterdir())) == 1
    assert call(*arguments, folder=tmp_path).stdout == done.stdout
