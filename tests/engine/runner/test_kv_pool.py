"""Dividing the KV pool's memory into blocks."""

from dataclasses import replace

import pytest
import torch

from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
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
    shape = KVPoolShape.fit_memory(CONFIG, 4, torch.bfloat16, 10 * BLOCK + 5)
    assert (shape.num_blocks, shape.block_bytes, shape.num_tokens) == (10, BLOCK, 40)


def test_cache_has_the_null_block_on_top() -> None:
    shape = KVPoolShape.fit_memory(CONFIG, 4, torch.float32, 10 * 2 * BLOCK)
    cache = allocate_kv_cache(shape, CONFIG, torch.float32, torch.device("cpu"))
    assert [tuple(layer.shape) for layer in cache] == [(11, 2, 4, 6)] * 2
    assert all(layer.is_contiguous() and not layer.any() for layer in cache)


def test_too_little_memory_says_how_much_is_needed() -> None:
    with pytest.raises(KVPoolTooSmall, match=f"kv_cache_memory is {BLOCK} bytes: must be at least {2 * BLOCK}"):
        KVPoolShape.fit_memory(CONFIG, 4, torch.bfloat16, BLOCK)


def test_blocks_are_copied_in_every_layer() -> None:
    shape = KVPoolShape.fit_memory(CONFIG, 4, torch.float32, 10 * 2 * BLOCK)
    cache = allocate_kv_cache(shape, CONFIG, torch.float32, torch.device("cpu"))
    for number, layer in enumerate(cache):
        layer.copy_(torch.randn(layer.shape, generator=torch.Generator().manual_seed(number)))
    before = [layer.clone() for layer in cache]
    copy_blocks(cache, ((3, 7), (3, 1), (5, 2)))
    for layer, was in zip(cache, before, strict=True):
        source = torch.tensor([0, 3, 5, 3, 4, 5, 6, 3, 8, 9, 10])
        assert torch.equal(layer, was[source])


@pytest.mark.parametrize(
    ("stored", "row"), [(torch.int8, 10), (torch.float8_e4m3fn, 10), (torch.bfloat16, 12)], ids=str
)
def test_scales_are_in_the_block(stored: torch.dtype, row: int) -> None:
    """A block of 8 bits has six numbers, and two scales of two bytes."""
    shape = KVPoolShape.fit_memory(CONFIG, 4, stored, 2 * 2 * 4 * row * 5)
    assert (shape.num_blocks, shape.block_bytes) == (5, 2 * 2 * 4 * row)
    cache = allocate_kv_cache(shape, CONFIG, stored, torch.device("cpu"))
    assert sum(layer.nbytes for layer in cache) == 6 * shape.block_bytes


def _running_when_the_pool_runs_dry(stored: torch.dtype) -> int:
    config = replace(CONFIG, head_dim=64)
    shape = KVPoolShape.fit_memory(config, 32, stored, 16 * 2**20)
    limits = {"max_num_seqs": 128, "max_batched_tokens": 8192, "max_model_len": 1024, "prefix_cache": False}
    scheduler = Scheduler(SchedulerConfig(block_size=32, num_blocks=shape.num_blocks, **limits))
    for number in range(128):
        params = SamplingParams(max_tokens=500, temperature=0.0, ignore_eos=True)
        scheduler.add(Request(RequestSpec(f"r{number}", [1] * 250, params)))
    while True:
        running = len(scheduler.running)
        batch = scheduler.schedule(0.0)
        if batch.preempted:
            return running
        scheduler.update(batch, StepResult([1 if item.samples else None for item in batch.scheduled]), 0.0)


def test_8_bits_hold_about_twice_as_many_sequences() -> None:
    """Before the first preemption, in a pool of the same bytes: 132 a token and head of 64, not 256."""
    plain, scaled = (_running_when_the_pool_runs_dry(stored) for stored in (torch.bfloat16, torch.int8))
    assert plain > 20
    assert scaled / plain == pytest.approx(256 / 132, rel=0.05)
