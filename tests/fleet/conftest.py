"""Fleets that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.fleet import Up


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Start ``paternoster up`` with the given parts of spec."""
    started: list[Up] = []

    def start(**spec: Any) -> Up:
        started.append(Up(tmp_path, **spec))
        return started[-1]

    yield start
    for fleet in started:
        fleet.close()
