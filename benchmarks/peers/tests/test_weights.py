"""The bfloat16 GGUF file, with a stand-in for llama.cpp's converter."""

import sys
from pathlib import Path

import pytest

from peers.systems import weights
from peers.systems.environment import Environment, SetUpError

CONVERTER = """\
import sys
out = sys.argv[sys.argv.index("--outfile") + 1]
with open(out, "a") as file:
    file.write(" ".join(sys.argv[1:3]) + " of " + sys.argv[-1])
sys.exit({status})
"""


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "Model-135M.Q4_1"
    folder.mkdir()
    monkeypatch.setattr(weights, "checkpoint", lambda: folder)
    monkeypatch.setattr(Environment, "set_up", lambda _: None)
    monkeypatch.setattr(Environment, "python", Path(sys.executable))
    return folder


def test_the_file_is_written_once_out_of_the_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    converter = tmp_path / "converter.py"
    converter.write_text(CONVERTER.format(status=0))
    for _ in range(2):
        written = weights.bfloat16_gguf(converter)
        assert written == tmp_path / "Model-135M.Q4_1.bf16.gguf"
        assert written.read_text() == f"--outtype bf16 of {checkpoint}"


def test_what_a_converter_that_failed_left_is_not_taken(tmp_path: Path, checkpoint: Path) -> None:
    converter = tmp_path / "converter.py"
    converter.write_text(CONVERTER.format(status=1))
    for _ in range(2):
        with pytest.raises(SetUpError, match="weights: bfloat16 GGUF: exit status 1"):
            weights.bfloat16_gguf(converter)
    assert list(tmp_path.glob("*.gguf")) == []
