"""The engine's parts of the GPU check run through on a CPU, so that no slip waits for a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.engines.tiny_models import OWN

CHECK = (Path(__file__).resolve().parents[2], "gpu.check")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_parts_run_on_a_cpu(tmp_path: Path) -> None:
    table = tmp_path / "check.json"
    command = [sys.executable, *CHECK, "--device", "cpu", "--quick", "--seconds", "1800", "--json", table]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(table.read_text())
    assert found["failures"] == []
    checks = [f"tiny {family}, {way}" for family in OWN for way in ("greedy", "sampled")]
    assert [(row["name"], row["requests"], row["passed"]) for row in found["engine_checks"]] == [
        (name, 8, True) for name in checks
    ]
    assert [(row["phase"], row["batch"]) for row in found["end_to_end"]] == [
        ("prefill", 3),
        ("decode", 3),
        ("decode", 1),
    ]
    assert all(row["tokens_per_second"] > 0 for row in found["end_to_end"])
    # A CPU is no GPU: no share of a GPU's ceilings, no share of its time.
    assert {row[share] for row in found["end_to_end"] for share in ("of_ceiling", "busy")} == {None}
    speeds = {row["system"]: row["tokens_per_second"] for row in found["compared"]}
    assert speeds["paternoster"] > 0
    assert speeds["transformers, static"] > 0
    assert "transformers, continuous batching" in speeds


def test_a_cpu_is_not_measured_in_earnest(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, *CHECK, "--device", "cpu"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "device is cpu: must be cuda, unless --quick is given" in done.stderr


def test_what_one_part_finds_outlives_the_failure_of_another(tmp_path: Path) -> None:
    table = tmp_path / "check.json"
    broken = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from gpu.check import main; from gpu.engines import engine_parts; "
        "engine_parts.check_engine = lambda *_: [][0]; engine_parts.measure = lambda *_: [][0]; "
        "engine_parts.compare = lambda *_: []; sys.argv[1:2] = []; sys.exit(main())"
    )
    command = [sys.executable, "-c", broken, CHECK[0], "--device", "cpu", "--quick", "--json", table]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(table.read_text())
    assert found["failures"][0] == "IndexError: list index out of range"
    assert all("IndexError" in failure for failure in found["failures"][1:])
    assert len(found["failures"]) > 1
    assert found["compared"] == []
