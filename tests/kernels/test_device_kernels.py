"""The Triton kernels in Triton's interpreter, in a process of its own: it must be chosen before Triton is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "device"


def interpret(marker: str) -> None:
    command = [Path(sys.executable).parent / "pytest", FOLDER, "-m", marker, "-q", "-x", "-p", "no:cacheprovider"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=FOLDER.parents[2], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.timeout(900)
def test_kernels_in_the_interpreter() -> None:
    interpret("not slow")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_shape_in_the_interpreter() -> None:
    interpret("slow")
