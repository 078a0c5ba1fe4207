"""Every kernel compiled by ptxas for GPUs that are not there."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import paternoster_kernels

BENCHMARKS = Path(__file__).resolve().parents[2]


def kernels() -> set[str]:
    """Names of all kernels there are."""
    folder = Path(paternoster_kernels.__file__).parent / "triton"
    modules = [
        import_module(f"paternoster_kernels.triton.{module.name}") for module in pkgutil.iter_modules([str(folder)])
    ]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_kernel_compiles_and_fits(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    table = tmp_path / "compiled.json"
    done = subprocess.run([sys.executable, BENCHMARKS, "gpu.compile", "--json", table], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = json.loads(table.read_text())
    assert {row["capability"] for row in rows} == {80, 90, 100}
    # A few bytes at the limit of 255 registers are cheap; more would mean a tile that does not fit its threads.
    assert max(row["spill_bytes"] for row in rows) <= 128
    assert {row["kernel"] for row in rows} == kernels()


def test_a_machine_without_cuda_is_told_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    done = subprocess.run([sys.executable, BENCHMARKS, "gpu.check"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no CUDA device" in done.stderr
