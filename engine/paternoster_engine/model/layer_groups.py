"""Layers divided into groups of one size and one attention each, so that a block of the KV pool serves any of them.

As in vLLM's hybrid KV cache manager: a block holds ``block_size`` tokens of the layers of one group. A group with fewer
layers than the others leaves a part of its blocks empty, and each group costs a block table and an attention plan in
every step. So of all sizes with at most ``MAX_GROUPS`` groups that one is taken with which the longest sequence holds
the least memory.

Gemma 3 1B, 4 layers that see all 32768 tokens and 22 with a window of 512: 7 groups of 4 layers, which hold
4 * (32768 + 6 * 512) tokens of a layer, and not the 26 * 32768 of one group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_GROUPS = 8


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that keep the same tokens."""

    window: int | None
    """How many tokens a token sees with itself; None for all before it."""
    layers: tuple[int, ...]


@lru_cache
def layer_groups(windows: tuple[int | None, ...], longest: int) -> tuple[LayerGroup, ...]:
    """Groups of the layers with ``windows``, first to last; ``longest``: tokens of the longest sequence.

    All have as many layers as the first one, but for the last one of each window.
    """
    kinds: dict[int, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(longest if window is None else min(window, longest), []).append(layer)

    def divide_groups(size: int) -> Iterator[LayerGroup]:
        for seen, layers in sorted(kinds.items(), reverse=True):
            for first in range(0, len(layers), size):
                yield LayerGroup(None if seen == longest else seen, tuple(layers[first : first + size]))

    def count_held(groups: tuple[LayerGroup, ...]) -> int:
        size = max(len(group.layers) for group in groups)
        return size * sum(group.window or longest for group in groups)

    largest = max(map(len, kinds.values()))
    choices = [tuple(divide_groups(size)) for size in range(1, largest + 1)]
    choices = [groups for groups in choices if len(groups) <= MAX_GROUPS]
    choices.append((LayerGroup(None, tuple(range(len(windows)))),))
    return min(choices, key=lambda groups: (count_held(groups), len(groups)))
