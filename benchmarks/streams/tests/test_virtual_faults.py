"""Calls among faults in virtual time: the invariants hold, and each finds the fault that is planted for it."""

import pytest

from streams.virtual.planted import FAULTS, plant_fault
from streams.virtual.running_call import Violation
from streams.virtual.world import World

pytestmark = pytest.mark.timeout(600)  # some are long on a busy machine


@pytest.mark.parametrize("seed", range(4))
def test_no_invariant_is_broken(seed: int) -> None:
    world = World(seed, 2000)
    world.run()
    assert world.outcomes["ended"] > 1800
    assert world.outcomes.total() == 2000


def test_poison_calls_are_quarantined_and_a_seed_repeats_its_run() -> None:
    first, again = World(5, 3000), World(5, 3000)
    for world in (first, again):
        world.run()
    assert first.outcomes["request_quarantined"] > 0
    assert (first.outcomes, first.clock.num_events, first.clock.now) == (
        again.outcomes, again.clock.num_events, again.clock.now
    )  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_within_ten_thousand_calls(name: str) -> None:
    with plant_fault(name), pytest.raises(Violation, match=f"^{name}: "):
        World(2, 10_000).run()
