"""Hundreds of fleets, thousands of engines, one operator: what it costs and how soon it acts, within budgets.

``PATERNOSTER_SCALE`` is the number of fleets, of 10 engines each: 500 by default, and 100 has budgets, too. The control
plane is not the suite's: it is larger, ends with this test, and lies in namespaces of its own, because the suite's has
its ports already.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paternoster_e2e.cluster import network
from performance import budgets

FLEETS = int(os.environ.get("PATERNOSTER_SCALE", "500"))
PODS = 10
ROOM = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fleets", [pytest.param(FLEETS, id=f"{FLEETS}x{PODS}")])
def test_the_operator_keeps_its_budgets(fleets: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if not network.isolated():
        reason = "no cluster can be started here: run `make e2e`"
        pytest.fail(reason) if os.environ.get("REQUIRE_COMPONENTS") else pytest.skip(reason)
    file = tmp_path / "result.json"
    words = ["--fleets", str(fleets), "--pods", str(PODS), "--result", str(file)]
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with capfd.disabled():  # progress and the table, for the user who waits
        done = subprocess.run(
            [*network.ISOLATE, sys.executable, "-P", "-m", "performance.run", *words],
            env={**environment, "PYTHONPATH": str(ROOM)},
        )
    assert done.returncode == 0
    result = json.loads(file.read_text())
    assert budgets.exceeded(result["metrics"], budgets.load(result["size"])) == []
