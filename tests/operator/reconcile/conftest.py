"""A world for each test."""

from collections.abc import AsyncIterator

import pytest
from tests.operator.reconcile.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    runner = await world.engine.start()
    yield world
    await world.scraper.close()
    await runner.cleanup()
