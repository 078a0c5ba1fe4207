"""All layers in one native call against the same layers one operation at a time."""

import pytest
import torch

from paternoster_engine.model.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_kernels import RaggedBatch
from paternoster_kernels.cpu.library import library

CPU = torch.device("cpu")
BATCHES = [
    RaggedBatch([100, 40], [100, 40], [[1, 2, 3, 4], [5, 6]]),
    RaggedBatch([1, 1, 30], [101, 41, 30], [[1, 2, 3, 4], [5, 6], [7]]),
    RaggedBatch([1, 1, 1], [102, 42, 31], [[1, 2, 3, 4], [5, 6], [7]]),
]
"""Prompts; then those decode beside a new one; then all decode."""


def _step(model: Decoder, cache: torch.Tensor, batch: RaggedBatch) -> StepInput:
    tokens = torch.Generator().manual_seed(sum(batch.seq_lens))
    pairs = zip(batch.seq_lens, batch.query_lens, strict=True)
    return StepInput(
        token_ids=torch.randint(model.config.vocab_size, (sum(batch.query_lens),), generator=tokens),
        positions=torch.cat([torch.arange(length - new, length) for length, new in pairs]),
        sample_rows=torch.tensor(batch.query_lens).cumsum(0) - 1,
        attention=[model.plan_attention(batch, cache)],
    )


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.int8], ids=str)
@torch.inference_mode()
def test_they_are_the_same(checkpoint: Checkpoint, stored: torch.dtype) -> None:
    if library() is None:
        pytest.skip("no native operations here")
    model = Decoder(checkpoint.config, checkpoint.tensor, torch.bfloat16, CPU)
    at_once, one_by_one = (allocate_kv_cache(KVPoolShape(7, 32, 0), checkpoint.config, stored, CPU) for _ in range(2))
    native = model._native_layers
    assert native is not None
    for batch in BATCHES:
        model._native_layers = native
        got = model.forward(_step(model, at_once[0], batch), at_once)
        model._native_layers = None
        expected = model.forward(_step(model, one_by_one[0], batch), one_by_one)
        assert torch.equal(got, expected)
    assert all(map(torch.equal, at_once, one_by_one))


def test_other_numbers_go_one_by_one(model: Decoder) -> None:
    assert model._native_layers is None
