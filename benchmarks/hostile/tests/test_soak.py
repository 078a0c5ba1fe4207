"""The soak's short form: no request is left without an answer, and nothing is held when all is quiet."""

from pathlib import Path

import pytest

from hostile.attackers.attack_rows import ROWS
from hostile.calls import End
from hostile.soak import slope, soak

SECONDS, PAUSE = 34, 1
"""In which each fault has its turn: a pause before each, 5 and 12 seconds of two of them, and 12 left for a start."""
ATTACKS = tuple(row for row in ROWS if row.kind in ("refused prompts", "large bodies"))
CALLERS = 6
"""Three an engine: all that is in flight when the load ends is waited for, too."""


@pytest.mark.slow
@pytest.mark.timeout(420)
async def test_a_short_soak_loses_nothing_and_holds_nothing(tmp_path: Path) -> None:
    result = await soak(tmp_path, SECONDS, CALLERS, PAUSE, ATTACKS)
    assert result.faults == []
    assert {"SIGKILL", "full disk"} <= set(result.done)
    assert any(what.startswith("SIGSTOP") for what in result.done)
    assert result.attacks
    assert sum(ends.get(End.WHOLE.value, 0) for ends in result.ends.values()) >= 5


def test_the_slope_sees_a_leak_and_not_a_jump() -> None:
    leak = [(float(second), 100.0 + 3 * second) for second in range(100)]
    assert slope(leak) == pytest.approx(3)
    jump = [(float(second), 100.0 if second < 90 else 5000.0) for second in range(100)]
    assert slope(jump) == 0
