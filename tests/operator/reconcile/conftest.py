"""A world for each test."""

from collections.abc import AsyncIterator

import pytest
from tests.operator.reconcile.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with world.engine.listening():
        yield world
        await world.scraper.close()
