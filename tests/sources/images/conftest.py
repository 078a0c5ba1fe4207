"""An image that each test lays out by itself."""

from pathlib import Path

import pytest
from tests.sources.images.image_layouts import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")
