"""Attention against the oracle in float64: ragged lengths, block edges, head shapes, options, and poison around."""

import dataclasses
import os
from typing import Any

import pytest
import torch
from tests.engine.oracle.covering import every, pairwise
from tests.kernels.device.guard_bands import guarded_outputs
from tests.kernels.device.ragged import Paged, paged

from paternoster_kernels import RaggedBatch, scaled_cache
from paternoster_kernels.device_batch import plan_attention
from paternoster_kernels.reference.unified_attention import unified_attention as reference
from paternoster_kernels.triton.merge_splits import MAX_SPLITS, SPLIT_TOKENS
from paternoster_kernels.triton.unified_attention import unified_attention

BOUND = {torch.float32: 1e-5, torch.float16: 1.1 * 2.0**-10, torch.bfloat16: 1.1 * 2.0**-8}
"""Largest error over the largest value: outputs are means of values, and weights and means are each rounded once."""

SHAPES = {
    "group": (1, 3, 4, 7, 8),
    "head_dim": (64, 80, 96, 128, 192, 256),
    "block_size": (16, 32, 64),
    "dtype": (torch.float32, torch.float16, torch.bfloat16),
}
SOME = os.environ.get("TRITON_INTERPRET") == "1" and os.environ.get("PATERNOSTER_SHAPES") != "full"
CHOSEN = list(pairwise(SHAPES) if SOME else every(SHAPES))
"""On a GPU all; in the interpreter, which is slow, those in which every two values meet, or all if asked for."""


def check(step: Paged, heads: int, dtype: torch.dtype, generator: torch.Generator, **options: object) -> torch.Tensor:
    """Run one step between guard bands, compare it with the oracle, return the queries."""
    tokens = int(step.batch.query_starts[-1])
    head_dim = scaled_cache.head_dim_of(step.cache)
    # A slice of something wider, as the queries of a fused QKV are.
    wide = torch.randn(tokens, heads + 2, head_dim, generator=generator, device=generator.device).to(dtype)
    queries = wide[:, :heads]
    scale = head_dim**-0.5
    with guarded_outputs():
        got = unified_attention(queries, step.cache, step.batch, scale, **options)
    # The oracle has no options of how it is computed.
    options.pop("one_pass", None)
    expected = reference(queries.double(), step.cache, step.batch, scale, **options)
    assert got.dtype == dtype
    largest = 127 * 0.06 if scaled_cache.is_scaled(step.cache) else 4.0
    assert (got.double() - expected).abs().max().item() <= BOUND[dtype] * largest
    return queries


def lengths(block_size: int) -> tuple[list[int], list[int]]:
    """Decodes at block edges, short and long prefills, with and without tokens before them."""
    edges = [block_size - 1, block_size, block_size + 1, 1]
    return [1, 1, 1, 1, block_size + 1, 2, 23], [*edges, block_size + 1, 2 * block_size, 3 * block_size - 1]


@pytest.mark.parametrize("group", [3, 8, 20])
def test_decode_batches(group: int, generator: torch.Generator) -> None:
    seq_lens = [1, 31, 32, 33, SPLIT_TOKENS - 1, SPLIT_TOKENS, SPLIT_TOKENS + 1, 700]
    step = paged([1] * len(seq_lens), seq_lens, 2, 64, 32, torch.float32, generator)
    check(step, 2 * group, torch.float32, generator)


def test_a_few_drafted_tokens_are_split_like_one(generator: torch.Generator) -> None:
    step = paged([5, 1, 3], [600, 300, 280], 1, 64, 32, torch.float32, generator)
    check(step, 3, torch.float32, generator)


def test_more_tokens_than_splits_can_be_many(generator: torch.Generator) -> None:
    step = paged([1], [SPLIT_TOKENS * MAX_SPLITS + 700], 1, 64, 128, torch.float32, generator)
    check(step, 2, torch.float32, generator)


@pytest.mark.parametrize("window", [1, 31, 32, 33, 270])
def test_sliding_window(window: int, generator: torch.Generator) -> None:
    step = paged([1, 1, 4, 40], [20, 600, 300, 90], 1, 64, 32, torch.float32, generator)
    check(step, 3, torch.float32, generator, window=window)


def test_window_reads_nothing_before_itself(generator: torch.Generator) -> None:
    step = paged([1, 40], [600, 300], 1, 64, 32, torch.float32, generator)
    for table, length, query_len in zip(step.host.block_tables, step.host.seq_lens, step.host.query_lens, strict=True):
        step.cache[list(table[: (length - query_len - 100 + 1) // 32])] = float("nan")
    queries = torch.randn(41, 3, 64, generator=generator, device=generator.device)
    assert not unified_attention(queries, step.cache, step.batch, 0.1, window=100).isnan().any()


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("one_pass", [False, True])
def test_sinks(window: int | None, one_pass: bool, generator: torch.Generator) -> None:
    """In sequences of one split and of several, decodes and prompts."""
    step = paged([1, 1, 3, 50], [5, 700, 40, 90], 2, 64, 32, torch.float32, generator)
    sinks = 2 * torch.randn(6, generator=generator, device=generator.device)
    check(step, 6, torch.float32, generator, window=window, one_pass=one_pass, sinks=sinks)


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_softcap(softcap: float, generator: torch.Generator) -> None:
    step = paged([1, 1, 40], [20, 600, 90], 1, 64, 32, torch.float32, generator)
    check(step, 3, torch.float32, generator, softcap=softcap)


@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_quantized_cache(stored: torch.dtype, dtype: torch.dtype, generator: torch.Generator) -> None:
    step = paged([1, 1, 40], [33, 600, 90], 1, 64, 32, stored, generator)
    check(step, 4, dtype, generator)


def test_scores_far_apart_do_not_overflow(generator: torch.Generator) -> None:
    step = paged([1, 20], [300, 50], 1, 64, 32, torch.float32, generator)
    queries = 1e4 * torch.randn(21, 3, 64, generator=generator, device=generator.device)
    got = unified_attention(queries, step.cache, step.batch, 1.0)
    torch.testing.assert_close(
        got.double(), reference(queries.double(), step.cache, step.batch, 1.0), rtol=0, atol=0.05
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_request_gets_the_same_numbers_in_any_batch(dtype: torch.dtype, generator: torch.Generator) -> None:
    query_lens, seq_lens = [1, 30, 1, 1, 4, 23], [33, 64, 700, 32, 300, 23]
    step = paged(query_lens, seq_lens, 2, 64, 32, dtype, generator)
    queries = torch.randn(sum(query_lens), 6, 64, generator=generator, device=generator.device).to(dtype)
    together = unified_attention(queries, step.cache, step.batch, 0.125).split(query_lens)
    for row, (expected, own) in enumerate(zip(together, queries.split(query_lens), strict=True)):
        assert torch.equal(unified_attention(own, step.cache, step.alone(row), 0.125), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_in_one_pass_chunks_do_not_matter_either(dtype: torch.dtype, generator: torch.Generator) -> None:
    """Each token once more as the last of its sequence, as if its prompt had been cut before it and behind it."""
    query_lens, seq_lens = [1, 30, 4, 70], [600, 64, 300, 70]
    step = paged(query_lens, seq_lens, 2, 64, 32, dtype, generator)
    queries = check(step, 6, dtype, generator, one_pass=True)
    together = unified_attention(queries, step.cache, step.batch, 0.125, one_pass=True)
    row = 0
    for query_len, seq_len, table in zip(query_lens, seq_lens, step.host.block_tables, strict=True):
        for token in {0, query_len // 2, query_len - 1}:
            single = plan_attention(RaggedBatch([1], [seq_len - query_len + token + 1], [table]), step.cache)
            own = queries[row + token : row + token + 1]
            assert torch.equal(
                unified_attention(own, step.cache, single, 0.125, one_pass=True)[0], together[row + token]
            )
        row += query_len


def test_rows_of_padding_write_nothing(generator: torch.Generator) -> None:
    """A captured graph has more rows and a longer bound than this step."""
    step = paged([1, 1], [300, 33], 1, 64, 32, torch.float32, generator)
    batch, device = step.batch, generator.device
    tables = torch.ones(3, batch.block_tables.shape[1], dtype=torch.int32, device=device)
    ends = torch.full((3,), 2, dtype=torch.int32, device=device)
    padded = dataclasses.replace(
        batch,
        query_starts=torch.cat((batch.query_starts, ends)),
        seq_lens=torch.cat((batch.seq_lens, torch.zeros_like(ends))),
        block_tables=torch.cat((batch.block_tables, tables)),
        max_seq_len=2000,
    )
    queries = torch.randn(5, 3, 64, generator=generator, device=device)
    out = torch.full_like(queries, 7.0)
    unified_attention(queries, step.cache, padded, 0.1, out=out)
    assert torch.equal(out[:2], unified_attention(queries[:2], step.cache, batch, 0.1))
    assert (out[2:] == 7.0).all()


def test_what_does_not_fit_is_refused(generator: torch.Generator) -> None:
    step = paged([1], [20], 2, 64, 32, torch.float32, generator)
    with pytest.raises(ValueError, match="must divide"):
        unified_attention(torch.zeros(1, 3, 64, device=generator.device), step.cache, step.batch, 0.1)
    with pytest.raises(ValueError, match="block_size is 24"):
        unified_attention(torch.zeros(1, 2, 64, device=generator.device), step.cache[:, :, :24], step.batch, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", CHOSEN, ids=lambda shape: "-".join(str(value) for value in shape.values()))
def test_every_shape(shape: dict[str, Any], generator: torch.Generator) -> None:
    block_size = shape["block_size"]
    step = paged(*lengths(block_size), 2, shape["head_dim"], block_size, shape["dtype"], generator)
    check(step, 2 * shape["group"], shape["dtype"], generator)
