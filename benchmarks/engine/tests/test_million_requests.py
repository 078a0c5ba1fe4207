"""The soak in short: what a million requests must not do, one thousand must not do either."""

import gc
from collections.abc import Iterator

import pytest

from engine.million_requests import CONFIG, soak


@pytest.fixture(autouse=True)
def only_its_own_objects() -> Iterator[None]:
    """What the process held before is neither counted nor looked through again, a hundred times."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_every_request_ends_every_block_comes_back_and_nothing_piles_up(prefix_cache: bool) -> None:
    soaked = soak(1000, CONFIG.replace(prefix_cache=prefix_cache))
    assert sum(soaked.finished.values()) == soaked.requests == 1000
    assert {"stop", "length", "abort", "timeout"} <= soaked.finished.keys()
    assert soaked.preemptions > 0
    assert soaked.swapped_blocks > 0
    assert soaked.blocks_held == soaked.host_blocks_held == 0
    settled = soaked.objects[len(soaked.objects) // 3 :]
    # Requests that run hold a few dozen objects each; one thousand that stayed would be tens of thousands.
    assert max(settled) - min(settled) < 3000
