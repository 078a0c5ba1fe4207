"""In virtual time: a limit between tokens that is kept where steps of one size differ."""

import numpy as np
import pytest

from simulator.noisy_steps import LIMIT_MS, BusyReplica, Noise


@pytest.mark.parametrize("noise", [Noise(0.5, 0), Noise(0.3, 0.4)], ids=["each step", "the load"])
def test_a_budget_that_moves_keeps_the_limit_where_steps_differ(noise: Noise) -> None:
    fixed, moved = (BusyReplica(noise, mode, 0).run(8, 400) for mode in ("Fixed", "Auto"))
    assert np.percentile(moved.between, 95) <= LIMIT_MS / 1000 < np.percentile(fixed.between, 95)
    assert max(moved.budgets) < 512
