"""How layers are divided into groups: each in one, of one window, in as little memory as that allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.model.layer_groups import MAX_GROUPS, LayerGroup, layer_groups


def held(groups: tuple[LayerGroup, ...], longest: int) -> int:
    return max(len(group.layers) for group in groups) * sum(group.window or longest for group in groups)


@given(st.lists(st.sampled_from([None, 3, 16, 100, 5000]), min_size=1, max_size=40), st.integers(1, 6000))
def test_any_layers(windows: list[int | None], longest: int) -> None:
    groups = layer_groups(tuple(windows), longest)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    assert len(groups) <= MAX_GROUPS
    for group in groups:
        for layer in group.layers:
            window = windows[layer]
            # Never less than a layer reads.
            assert group.window is None or (window is not None and min(window, longest) <= group.window)
    assert held(groups, longest) <= len(windows) * longest, "more than without groups"


@given(st.integers(1, 60), st.sampled_from([None, 64]))
def test_layers_of_one_kind_are_one_group(count: int, window: int | None) -> None:
    assert layer_groups((window,) * count, 4096) == (LayerGroup(window, tuple(range(count))),)


@pytest.mark.parametrize(
    ("full", "sliding", "window", "longest", "size", "groups"),
    [
        (4, 22, 512, 32_768, 4, 7),  # Gemma 3 1B
        (8, 40, 1024, 131_072, 8, 6),  # Gemma 3 12B
        (12, 12, 128, 131_072, 12, 2),  # gpt-oss 20B
        (13, 13, 4096, 8192, 13, 2),  # Gemma 2 2B
        (12, 13, 4096, 8192, 13, 2),
        (2, 2, 9000, 8192, 4, 1),  # a window that is never left
    ],
)
def test_models(full: int, sliding: int, window: int, longest: int, size: int, groups: int) -> None:
    found = layer_groups((None,) * full + (window,) * sliding, longest)
    assert (max(len(group.layers) for group in found), len(found)) == (size, groups)
