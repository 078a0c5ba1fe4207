"""All experts in two products, against expert after expert."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.families import tiny_families as tiny

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.layers.experts import Grouped, OneByOne
from paternoster_engine.model.layers.parts import Parts
from paternoster_engine.process_group import ALONE


@pytest.fixture(scope="module")
def both(checkpoint_of: Callable[[str, str], Checkpoint]) -> tuple[Grouped, OneByOne, int]:
    checkpoint = checkpoint_of("qwen3_moe", "safetensors")
    parts = Parts(
        checkpoint.config, checkpoint.get_tensor, torch.float32, tiny.CPU, ALONE, invariant=False, quantization="none"
    )
    experts = checkpoint.config.layers[0].experts
    assert experts is not None
    prefixes = [f"model.layers.0.mlp.experts.{number}." for number in range(experts.count)]
    return Grouped(parts, prefixes), OneByOne(parts, prefixes), experts.count


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_they_are_the_same(both: tuple[Grouped, OneByOne, int], tokens: int, active: int, seed: int) -> None:
    grouped, one_by_one, count = both
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, tiny.SIZES["hidden_size"], generator=generator)
    shares, chosen = torch.rand(tokens, count, generator=generator).topk(active, -1)
    got, expected = grouped(hidden, shares, chosen), one_by_one(hidden, shares, chosen)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
