"""The barrier before kopf's first handler: who waits is woken once, when it opens."""

import asyncio
import inspect

import pytest
from kopf._cogs.aiokits.aiotoggles import ToggleSet

from paternoster_operator.cluster import kopf_toggles

MAKE, DROP = ToggleSet.make_toggle, ToggleSet.drop_toggle
OBJECTS = 200


class CountedToggles(ToggleSet):
    """Counts how often its state is read."""

    num_reads = 0

    def is_on(self) -> bool:
        self.num_reads += 1
        return super().is_on()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToggleSet, "make_toggle", MAKE)
    monkeypatch.setattr(ToggleSet, "drop_toggle", DROP)
    kopf_toggles.install_toggles()


async def test_an_object_costs_the_same_however_many_wait() -> None:
    toggles, opened = CountedToggles(all), []

    async def index_object() -> None:
        toggle = await toggles.make_toggle()
        await asyncio.sleep(0)
        await toggles.drop_toggle(toggle)
        await toggles.wait_for(True)
        opened.append(len(toggles))

    barrier = await toggles.make_toggle()
    tasks = []
    for _ in range(OBJECTS):
        tasks.append(asyncio.create_task(index_object()))
        for _ in range(5):  # until it waits, as most do while the rest of a list is read
            await asyncio.sleep(0)
    assert len(toggles) == 1
    assert not opened, "one is not indexed yet"
    await toggles.drop_toggle(barrier)
    await asyncio.gather(*tasks)
    assert opened == [0] * OBJECTS
    assert toggles.num_reads < 10 * OBJECTS


@pytest.mark.parametrize("rule", [all, any])
async def test_whoever_waits_for_a_state_is_woken_by_it(rule: object) -> None:
    toggles = ToggleSet(rule)  # type: ignore[arg-type]
    first = await toggles.make_toggle(True)
    waiting = asyncio.create_task(toggles.wait_for(False))
    second = await toggles.make_toggle(False)
    await first.turn_to(False)
    await asyncio.wait_for(waiting, 60)
    waiting = asyncio.create_task(toggles.wait_for(True))
    await first.turn_to(True)
    await toggles.drop_toggle(second)
    await asyncio.wait_for(waiting, 60)


def test_kopf_makes_and_drops_toggles_as_this_release_does() -> None:
    assert list(inspect.signature(MAKE).parameters) == ["self", "_ToggleSet__val", "name"]
    assert list(inspect.signature(DROP).parameters) == ["self", "toggle"]
