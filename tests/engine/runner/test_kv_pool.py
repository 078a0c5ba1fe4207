"""Dividing the KV pool's memory into blocks."""

import pytest
import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.runner.kv_pool import KVPoolShape, KVPoolTooSmall, allocate_kv_cache, copy_blocks

CONFIG = ModelConfig(
    architecture="llama",
    name="tiny",
    vocab_size=8,
    hidden_size=8,
    intermediate_size=8,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=3,
    context_length=16,
    rope_theta=1.0,
    rms_norm_eps=1e-5,
    tied_embeddings=True,
)
BLOCK = 2 * 2 * 2 * 3 * 4 * 2  # k and v, layers, heads, head_dim, tokens, bytes


def test_memory_divides_into_blocks() -> None:
    shape = KVPoolShape.fit(CONFIG, 4, torch.bfloat16, 10 * BLOCK + 5)
    assert (shape.num_blocks, shape.block_bytes, shape.num_tokens) == (10, BLOCK, 40)


def test_cache_has_the_null_block_on_top() -> None:
    shape = KVPoolShape.fit(CONFIG, 4, torch.float32, 10 * 2 * BLOCK)
    cache = allocate_kv_cache(shape, CONFIG, torch.float32, torch.device("cpu"))
    assert [tuple(layer.shape) for layer in cache] == [(11, 2, 4, 6)] * 2
    assert all(layer.is_contiguous() and not layer.any() for layer in cache)


def test_too_little_memory_says_how_much_is_needed() -> None:
    with pytest.raises(KVPoolTooSmall, match=f"kv_cache_memory is {BLOCK} bytes: must be at least {2 * BLOCK}"):
        KVPoolShape.fit(CONFIG, 4, torch.bfloat16, BLOCK)


def test_blocks_are_copied_in_every_layer() -> None:
    shape = KVPoolShape.fit(CONFIG, 4, torch.float32, 10 * 2 * BLOCK)
    cache = allocate_kv_cache(shape, CONFIG, torch.float32, torch.device("cpu"))
    for number, layer in enumerate(cache):
        layer.copy_(torch.randn(layer.shape, generator=torch.Generator().manual_seed(number)))
    before = [layer.clone() for layer in cache]
    copy_blocks(cache, ((3, 7), (3, 1), (5, 2)))
    for layer, was in zip(cache, before, strict=True):
        source = torch.tensor([0, 3, 5, 3, 4, 5, 6, 3, 8, 9, 10])
        assert torch.equal(layer, was[source])
