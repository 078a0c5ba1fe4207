"""Every kernel compiled by ptxas for GPUs that are not there."""

import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import paternoster_kernels

BENCHMARKS = Path(__file__).resolve().parents[2]
BUDGETS = BENCHMARKS / "gpu/compiled.json"
TARGETS = {"sm_80", "sm_90", "sm_100", "gfx942"}


def kernels() -> set[str]:
    """Names of all kernels there are."""
    folder = Path(paternoster_kernels.__file__).parent / "triton"
    found = pkgutil.walk_packages([str(folder)], "paternoster_kernels.triton.")
    modules = [import_module(module.name) for module in found]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("CI" in os.environ, reason="CI compiles them for all targets: make gpu-compile")
def test_every_kernel_compiles_fits_and_takes_no_more_than_before() -> None:
    """In each of its cases, for one of the targets; for all of them in CI, by ``make gpu-compile``."""
    pytest.importorskip("triton")
    command = [sys.executable, BENCHMARKS, "gpu.compile", "--check", "--sample"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_what_is_written_is_of_every_kernel_and_every_target() -> None:
    table = json.loads(BUDGETS.read_text())
    assert {name.rpartition(": ")[2] for name in table} == kernels()
    for name, of_targets in table.items():
        assert of_targets.keys() | {"sm_80"} == TARGETS, name
        # A few bytes at the limit of 255 registers are cheap; more would mean a tile that does not fit its threads.
        assert max(spilled for _, spilled, _ in of_targets.values()) <= 128, name


def test_in_a_sample_every_target_has_its_turn() -> None:
    from gpu.compile import Turns

    turns, fp8 = Turns(["sm_80", "sm_90", "gfx942"]), ["sm_90", "gfx942"]
    every = ["sm_80", "sm_90", "gfx942"]
    assert [turns.of("attention", every) for _ in range(4)] == [["sm_80"], ["sm_90"], ["gfx942"], ["sm_80"]]
    assert [turns.of("rope", every), turns.of("rope", fp8), turns.of("rope", fp8)] == [["sm_90"], ["gfx942"], ["sm_90"]]
    assert turns.of("copy", every) == ["gfx942"]


def test_growth_is_a_fault_and_shrinking_is_none() -> None:
    from gpu.compile import faults

    budgets = {"case: kernel": {"sm_90": [100, 0, 2048]}}
    assert faults({"case: kernel": {"sm_90": [90, 0, 1024]}}, budgets) == []
    assert faults({"case: kernel": {"sm_90": [101, 4, 2048]}}, budgets) == [
        "case: kernel on sm_90: registers 101, 100 in compiled.json",
        "case: kernel on sm_90: spill_bytes 4, 0 in compiled.json",
    ]
    assert faults({"new: kernel": {"sm_90": [1, 0, 0]}}, budgets) == ["new: kernel on sm_90: not in compiled.json"]
    assert faults({"case: kernel": {"gfx942": [1, 0, 70_000]}}, {"case: kernel": {"gfx942": [1, 0, 70_000]}}) == [
        "case: kernel on gfx942: more shared memory than 65536 bytes"
    ]


def test_a_machine_without_cuda_is_told_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    done = subprocess.run([sys.executable, BENCHMARKS, "gpu.check"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no CUDA device" in done.stderr
