"""A row's numbers, bit for bit, alone and among others, on one thread and on several."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import RaggedBatch, pick_invariant, pick_kernel, reference
from paternoster_kernels.invariant.attention import paged_attention, plan_attention
from paternoster_kernels.invariant.matmul import ROWS, in_tiles
from paternoster_kernels.invariant.rows import head_norm, rms_norm, rows_at_once, silu_mul
from paternoster_kernels.registry import INVARIANT_MODULES

dtypes = st.sampled_from([torch.float32, torch.bfloat16])
seeds = st.integers(0, 2**32 - 1)
CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(request.param)


@settings(deadline=None, max_examples=40)
@given(seeds, dtypes, st.integers(1, 200), st.sampled_from([7, 48, 64, 90, 576, 1000, 1536]), st.booleans())
def test_norm_and_gate(seed: int, dtype: torch.dtype, rows: int, width: int, add: bool) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, residual, weight = (torch.randn(n, width, generator=draw).to(dtype) for n in (rows, rows, 1))
    row = slice(seed % rows, seed % rows + 1)
    residual_copy, residual_row = (residual.clone(), residual[row].clone()) if add else (None, None)
    together = rms_norm(x, weight[0], 1e-5, residual_copy)
    assert torch.equal(rms_norm(x[row], weight[0], 1e-5, residual_row), together[row])
    if residual_copy is not None and residual_row is not None:
        assert torch.equal(residual_row, residual_copy[row])
    torch.testing.assert_close(together, reference.rms_norm(x, weight[0], 1e-5, residual if add else None))
    gate_up = torch.cat((x, residual), 1)
    assert torch.equal(silu_mul(gate_up[row]), silu_mul(gate_up)[row])
    torch.testing.assert_close(silu_mul(gate_up), reference.silu_mul(gate_up))


@settings(deadline=None, max_examples=40)
@given(seeds, dtypes, st.integers(1, 200), st.sampled_from([(1, 1, 8), (3, 1, 64), (4, 2, 24), (16, 8, 128)]))
def test_norm_of_heads(seed: int, dtype: torch.dtype, rows: int, shape: tuple[int, int, int]) -> None:
    heads, kv_heads, head_dim = shape
    draw = torch.Generator().manual_seed(seed)
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * head_dim, generator=draw).to(dtype)
    weights = torch.randn(2, head_dim, generator=draw).to(dtype)
    row = slice(seed % rows, seed % rows + 1)
    alone, expected = qkv[row].clone(), qkv.clone()
    reference.head_norm(expected, *weights, kv_heads, 1e-6)
    for tokens in (qkv, alone):
        head_norm(tokens, *weights, kv_heads, 1e-6)
    assert torch.equal(qkv[row], alone)
    torch.testing.assert_close(qkv, expected)


def test_rows_share_a_call_only_where_torch_treats_them_alike() -> None:
    assert [rows_at_once(width) for width in (64, 576, 1536, 65_536, 65)] == [512, 56, 21, 1, 1]


@settings(deadline=None, max_examples=30)
@given(seeds, dtypes, st.integers(1, 3 * ROWS), st.sampled_from([(40, 36), (96, 576), (576, 96), (130, 1536)]))
def test_product(seed: int, dtype: torch.dtype, rows: int, shape: tuple[int, int]) -> None:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(shape, generator=draw).to(dtype)
    x = torch.randn(rows, shape[1], generator=draw).to(dtype)
    row = slice(seed % rows, seed % rows + 1)

    def product(tile: torch.Tensor) -> torch.Tensor:
        assert len(tile) == ROWS
        return torch.nn.functional.linear(tile, weight)

    together = in_tiles(product, x)
    assert together.shape == (rows, shape[0])
    assert torch.equal(in_tiles(product, x[row]), together[row])
    exact = x.double() @ weight.double().T
    size = x.double().abs() @ weight.double().abs().T
    assert ((together.double() - exact).abs() <= size * 2.0**-16 + exact.abs() * 2.0**-8).all()


def test_no_row_at_all() -> None:
    weight = torch.ones(3, 5)
    assert in_tiles(lambda x: x @ weight.T, torch.empty(0, 5)).shape == (0, 3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[RaggedBatch, int]:
    """Sequences with any number of new tokens in scattered blocks, and the block size."""
    block_size = draw(st.sampled_from([8, 24, 32, 300]))
    seq_lens = draw(st.lists(st.integers(1, 700), min_size=1, max_size=5))
    query_lens = [draw(st.just(1) | st.integers(1, min(n, 60))) for n in seq_lens]
    counts = [-(-n // block_size) for n in seq_lens]
    free = draw(st.permutations(range(1, sum(counts) + 1)))
    tables = [[free.pop() for _ in range(count)] for count in counts]
    return RaggedBatch(query_lens, seq_lens, tables), block_size


def _stored(rows: torch.Tensor) -> torch.Tensor:
    """A cache that these were written to: it need not hold them as rows."""
    cache, tokens = torch.zeros_like(rows), rows.transpose(1, 2).flatten(0, 1)
    batch = RaggedBatch([len(tokens)], [len(tokens)], [list(range(len(rows)))])
    pick_kernel("kv_write", CPU)(*tokens.chunk(2, -1), cache, pick_kernel("plan_attention", CPU)(batch, cache).slots)
    return cache


@settings(deadline=None, max_examples=40)
@given(batches(), dtypes, st.sampled_from([(1, 4, 16), (3, 3, 64), (2, 1, 64)]), seeds)
def test_attention(drawn: tuple[RaggedBatch, int], dtype: torch.dtype, shape: tuple[int, int, int], seed: int) -> None:
    """Also of a token whose prompt came in other chunks: each is computed once more as the last of its sequence."""
    batch, block_size = drawn
    kv_heads, group, head_dim = shape
    generator = torch.Generator().manual_seed(seed)
    blocks = sum(len(table) for table in batch.block_tables) + 1
    rows = torch.randn(blocks, kv_heads, block_size, 2 * head_dim, generator=generator).to(dtype)
    cache = _stored(rows)
    queries = torch.randn(sum(batch.query_lens), kv_heads * group, head_dim, generator=generator).to(dtype)
    together = paged_attention(queries, cache, plan_attention(batch, cache), 0.125)
    expected = reference.paged_attention(
        queries.double(), rows.double(), reference.plan_attention(batch, rows.double()), 0.125
    )
    bound = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
    assert (together.double() - expected).abs().max() <= bound
    row = 0
    for query_len, seq_len, table in zip(batch.query_lens, batch.seq_lens, batch.block_tables, strict=True):
        own = slice(row, row + query_len)
        alone = plan_attention(RaggedBatch([query_len], [seq_len], [table]), cache)
        assert torch.equal(paged_attention(queries[own], cache, alone, 0.125), together[own])
        token = row + seed % query_len
        num_tokens = seq_len - query_len + seed % query_len + 1
        single = plan_attention(RaggedBatch([1], [num_tokens], [table]), cache)
        assert torch.equal(paged_attention(queries[token : token + 1], cache, single, 0.125)[0], together[token])
        row += query_len


def test_the_registry_gives_them() -> None:
    assert pick_invariant("paged_attention", CPU) is paged_attention
    assert pick_invariant("argmax", CPU) is pick_kernel("argmax", CPU)
    assert pick_invariant("silu_mul", torch.device("cuda")) is pick_kernel("silu_mul", torch.device("cuda"))
    for device, modules in INVARIANT_MODULES.items():
        for op in modules:
            assert pick_invariant(op, torch.device(device)) is not pick_kernel(op, torch.device(device))
