"""``paternoster serve`` and a model that is broken: one line on stderr, exit status 3, without a traceback."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from paternoster_contract.cli.command import main
from paternoster_contract.labels import MODEL_EXIT_STATUS

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))


def _flags(model: str) -> list[str]:
    return ["serve", "--model", model, "--port", "0", "--device", "cpu"]


def test_file_that_is_cut(tiny_gguf: bytes, tmp_path: Path) -> None:
    """The command is a process here; the other tests call the command in this one, which has torch already."""
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf[:300])
    command = [PATERNOSTER, *_flags(path.as_uri())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == MODEL_EXIT_STATUS, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(path) in line


@pytest.mark.parametrize("count", [2**63, 2**33])
def test_count_that_lies(count: int, tiny_gguf: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf[:16] + struct.pack("<Q", count) + tiny_gguf[24:])
    assert main(_flags(path.as_uri())) == MODEL_EXIT_STATUS
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(
        f"paternoster serve: {path} is not a readable GGUF file: the number of fields is {count}: "
    )


def test_config_of_another_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": "x"}')
    assert main(_flags(folder.as_uri())) == MODEL_EXIT_STATUS
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert "config.json: hidden_size is 'x': must be a whole number" in line
