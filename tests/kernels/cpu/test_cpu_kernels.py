"""The C++ operations against their references, in float64 where rounding would blur the answer."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import RaggedBatch, reference, scaled_cache
from paternoster_kernels.cpu import attention, elementwise, kv_cache
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.reference.plan_attention import AttentionPlan

pytestmark = pytest.mark.usefixtures("instructions")

BF16 = torch.bfloat16
ROUNDING = 2.0**-8
"""Half the distance of two neighbours, relative."""


@pytest.fixture(autouse=True)
def two_threads() -> None:
    """The work is shared out, whatever the process began with."""
    torch.set_num_threads(2)


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _close(got: torch.Tensor, exact: torch.Tensor, tolerance: float = 1.1 * ROUNDING) -> None:
    assert got.dtype == BF16
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 16), (5, 576), (64, 1536)], ids=str)
def test_rms_norm(shape: tuple[int, int]) -> None:
    x, weight = _normal(*shape), _normal(shape[1], seed=1)
    _close(elementwise.rms_norm(x, weight, 1e-5), reference.rms_norm(x.double(), weight.double(), 1e-5))


def test_rms_norm_leaves_the_sum_in_the_residual() -> None:
    x, residual, weight = _normal(40, 576), _normal(40, 576, seed=1), _normal(576, seed=2)
    total = x + residual
    got = elementwise.rms_norm(x, weight, 1e-5, residual)
    assert torch.equal(residual, total)
    assert torch.equal(got, elementwise.rms_norm(total, weight, 1e-5))


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("gate", ["silu_mul", "gelu_mul"])
def test_gates(gate: str, rows: int) -> None:
    gate_up = _normal(rows, 96) * 8
    gate_up[0, :3] = torch.tensor([300.0, -300.0, 0.0])
    _close(getattr(elementwise, gate)(gate_up), getattr(reference, gate)(gate_up.double()))


@pytest.mark.parametrize("head_dim", [16, 64, 80])
def test_head_norm_leaves_the_values(head_dim: int) -> None:
    qkv, weights = _normal(5, 9 * head_dim), [_normal(head_dim, seed=seed) for seed in (1, 2)]
    exact = qkv.double()
    reference.head_norm(exact, *(weight.double() for weight in weights), 2, 1e-6)
    elementwise.head_norm(qkv, *weights, 2, 1e-6)
    _close(qkv, exact)
    assert torch.equal(qkv[:, 7 * head_dim :], _normal(5, 9 * head_dim)[:, 7 * head_dim :])


def test_argmax_takes_the_first_of_equals() -> None:
    logits = _normal(9, 4096)
    logits[3, [17, 1040, 33]] = 100.0
    logits[4] = -float("inf")
    logits[5, 4095] = 100.0
    best = elementwise.argmax(logits)
    assert torch.equal(best, reference.argmax(logits))
    assert best[3:6].tolist() == [17, -1, 4095]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_argmax_of_a_row_with_nan_or_infinity_anywhere_is_no_token(broken: float) -> None:
    logits = _normal(5, 4096)
    expected = elementwise.argmax(logits).tolist()
    for row, place in ((0, 0), (2, 1040), (4, 4095)):
        logits[row, place] = broken
        expected[row] = -1
    assert elementwise.argmax(logits).tolist() == reference.argmax(logits).tolist() == expected


def _rows(cache: torch.Tensor) -> torch.Tensor:
    """A cache of tiles as the reference has it."""
    numbers = scaled_cache.view_numbers(cache)
    width = numbers.shape[3]
    keys, values = numbers.reshape(-1, 2, 32 * width // 2).unbind(1)
    keys = keys.view(-1, 2, width // 4, 16, 2).transpose(2, 3).reshape(-1, 32, width // 2)
    values = values.view(-1, width // 32, 16, 16, 2).permute(0, 2, 4, 1, 3).reshape(-1, 32, width // 2)
    rows = cache.clone()
    scaled_cache.view_numbers(rows).copy_(torch.cat((keys, values), -1).view(numbers.shape))
    return rows


def _tiled(rows: torch.Tensor, stored: torch.dtype = BF16) -> torch.Tensor:
    """A cache of tiles that these were written to."""
    width = scaled_cache.token_width(rows.shape[3] // 2, stored)
    cache, tokens = torch.zeros(*rows.shape[:3], width, dtype=stored), rows.transpose(1, 2).flatten(0, 1)
    plan = attention.plan_attention(RaggedBatch([len(tokens)], [len(tokens)], [list(range(len(rows)))]), cache)
    kv_cache.kv_write(*tokens.chunk(2, -1), cache, plan.slots)
    return cache


@dataclass(frozen=True)
class Step:
    """``group``: query heads of a key head; ``rotary``: numbers of a head that are rotated."""

    batch: RaggedBatch
    block_size: int
    kv_heads: int
    group: int
    head_dim: int
    rotary: int
    stored: torch.dtype
    options: dict[str, Any]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Contexts of one chunk of 512 and more, windows within a step of 32 and beyond a chunk."""
    block_size = draw(st.sampled_from([32, 64]))
    seq_lens = draw(st.lists(st.one_of(st.integers(1, 100), st.integers(180, 900)), min_size=1, max_size=5))
    query_lens = [draw(st.one_of(st.just(1), st.integers(1, min(n, 100)))) for n in seq_lens]
    counts = [-(-n // block_size) for n in seq_lens]
    ids = draw(st.permutations(range(1, sum(counts) + 1)))
    tables = [[ids[sum(counts[:i]) + j] for j in range(count)] for i, count in enumerate(counts)]
    batch = RaggedBatch(query_lens, seq_lens, tables)
    kv_heads, group = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 4, 7, 13]))
    head_dim = draw(st.sampled_from([16, 48, 64, 80, 96, 112, 128, 192, 256]))
    options = {
        "window": draw(st.none() | st.sampled_from([1, 31, 33, 128, 600])),
        "softcap": draw(st.none() | st.sampled_from([0.5, 30.0])),
        "sinks": draw(st.none() | st.just(_normal(kv_heads * group, seed=9))),
    }
    rotary = draw(st.sampled_from([head_dim, head_dim // 2]))
    stored = draw(st.sampled_from([BF16, torch.int8]))
    return Step(batch, block_size, kv_heads, group, head_dim, rotary, stored, options)


@settings(max_examples=12, deadline=None)
@given(steps(), st.integers(0, 2**31))
def test_attention_and_the_write_before_it(step: Step, seed: int) -> None:
    batch, block_size, kv_heads, head_dim = step.batch, step.block_size, step.kv_heads, step.head_dim
    heads = kv_heads * step.group
    blocks = 1 + sum(len(table) for table in batch.block_tables)
    rows = _normal(blocks, kv_heads, block_size, 2 * head_dim, seed=seed)
    cache = _tiled(rows, step.stored)
    qkv = _normal(sum(batch.query_lens), (heads + 2 * kv_heads) * head_dim, seed=seed + 1)
    angles = _normal(max(batch.seq_lens), step.rotary // 2, seed=seed + 2, dtype=torch.float32)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    pairs = zip(batch.seq_lens, batch.query_lens, strict=True)
    positions = torch.cat([torch.arange(length - new, length) for length, new in pairs])
    plan = attention.plan_attention(batch, cache)
    assert isinstance(plan, DeviceBatch)

    exact_qkv, exact_cache = qkv.double(), rows.double()
    reference.rope_kv_write(exact_qkv, positions, table.double(), exact_cache, plan.slots)
    kv_cache.rope_kv_write(qkv, positions, table, cache, plan.slots)
    rotated = heads * head_dim
    torch.testing.assert_close(qkv[:, :rotated].double(), exact_qkv[:, :rotated], rtol=ROUNDING, atol=1e-5)
    rows = _rows(cache)
    held = scaled_cache.gather_tokens(rows, torch.arange(blocks), torch.float64)
    if step.stored == BF16:
        torch.testing.assert_close(held, exact_cache, rtol=ROUNDING, atol=1e-5)
    else:
        # Half a step of which the largest has 127, and the rounding of what is rotated and of the scale.
        off, largest = ((part.unflatten(-1, (2, -1)).abs()) for part in (held - exact_cache, exact_cache))
        assert (off <= largest.amax(-1, keepdim=True) * (0.5 / 127 + ROUNDING)).all()

    queries = qkv.view(len(qkv), -1, head_dim)[:, :heads]
    exact = reference.unified_attention(queries.double(), rows, plan, 0.11, **step.options)
    got = attention.paged_attention(queries, cache, plan, 0.11, **step.options)
    # Weights are rounded to bfloat16 before they meet the values, which are below 6.
    torch.testing.assert_close(got.double(), exact, rtol=ROUNDING, atol=6 * ROUNDING)


def test_a_table_in_float64_goes_to_the_reference() -> None:
    qkv, rows = _normal(3, 4 * 64), torch.zeros(3, 1, 32, 128, dtype=BF16)
    table = _normal(9, 64, dtype=torch.float64)
    expected, cache = qkv.clone(), _tiled(rows)
    slots, positions = torch.tensor([70, -1, 33]), torch.tensor([5, 6, 8])
    reference.rope_kv_write(expected, positions, table, rows, slots)
    kv_cache.rope_kv_write(qkv, positions, table, cache, slots)
    assert torch.equal(qkv, expected)
    assert torch.equal(_rows(cache), rows)


@pytest.mark.parametrize("stored", [BF16, torch.int8], ids=str)
@pytest.mark.parametrize("window", [None, 70])
def test_a_row_is_the_same_in_any_batch(window: int | None, stored: torch.dtype) -> None:
    cache = _tiled(_normal(60, 3, 32, 128), stored)
    queries = _normal(40, 9, 64, seed=1)
    seq_lens = [40 * i + 7 for i in range(1, 11)]
    tables = [[(7 * i + j) % 59 + 1 for j in range(14)] for i in range(10)]

    def attend(rows: torch.Tensor, *batch: list[Any]) -> torch.Tensor:
        plan = attention.plan_attention(RaggedBatch(*batch), cache)
        return attention.paged_attention(rows, cache, plan, 0.1, window=window)

    alone = [
        attend(queries[i : i + 1], [1], [n], [table]) for i, (n, table) in enumerate(zip(seq_lens, tables, strict=True))
    ]
    assert torch.equal(torch.cat(alone), attend(queries[:10], [1] * 10, seq_lens, tables))
    # Nor does it matter in which chunk of a prompt a row is: windows of one that begin in different chunks of 512.
    longest = [*tables[-1], *range(1, 6)]
    chunk = attend(queries, [40], [600], [longest])
    for i in (0, 8, 39):
        assert torch.equal(attend(queries[i : i + 1], [1], [561 + i], [longest])[0], chunk[i])


@pytest.mark.parametrize("stored", [BF16, torch.int8], ids=str)
def test_what_was_never_written_does_not_count(stored: torch.dtype) -> None:
    """Rows beyond a sequence's end are no numbers: in the block that it ends in, and in blocks of no sequence."""
    lengths = [1, 2, 31, 32, 33, 63, 520]
    tables = [list(range(17 * i + 1, 17 * i + 18)) for i in range(len(lengths))]
    rows = _normal(1 + 17 * len(lengths), 2, 32, 128)
    cache = _tiled(rows, stored)
    queries = _normal(len(lengths), 6, 64, seed=1)
    plan = attention.plan_attention(RaggedBatch([1] * len(lengths), lengths, tables), cache)
    expected = attention.paged_attention(queries, cache, plan, 0.1)
    if stored == BF16:
        cache.fill_(float("nan"))
    else:
        scaled_cache.view_scales(cache.fill_(-128)).fill_(float("nan"))
    for length, table in zip(lengths, tables, strict=True):
        rows_of_sequence = rows[table].transpose(1, 2).flatten(0, 1)[:length]
        slots = torch.tensor([32 * table[i // 32] + i % 32 for i in range(length)])
        kv_cache.kv_write(*rows_of_sequence.chunk(2, -1), cache, slots)
    assert torch.equal(attention.paged_attention(queries, cache, plan, 0.1), expected)


def test_numbers_are_rounded_to_the_nearest_and_the_even_of_two() -> None:
    """Sums of two bfloat16 numbers halfway between others, those that overflow, and those that are no numbers."""
    x = torch.tensor([1.0, 1.0078125, -1.0, 3.3e38, float("inf"), float("nan"), 1e-3, 0.0], dtype=BF16).repeat(2, 2)
    residual = torch.tensor([0.00390625, 0.00390625, -0.00390625, 3.3e38, -1.0, 1.0, 1e3, -0.0], dtype=BF16)
    residual = residual.repeat(2, 2)
    expected = residual + x
    elementwise.rms_norm(x, _normal(16), 1e-5, residual)
    assert torch.equal(residual.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert bool(residual[0, 5].isnan())


def test_padding_is_not_stored() -> None:
    qkv, cache = _normal(2, 5 * 64), _normal(3, 1, 32, 128)
    before, before_cache = qkv.clone(), cache.clone()
    kv_cache.rope_kv_write(qkv, torch.tensor([0, 1]), torch.ones(4, 64), cache, torch.tensor([-1, -1]))
    assert torch.equal(qkv, before)
    assert torch.equal(cache, before_cache)


@pytest.mark.parametrize(
    "cache",
    [torch.zeros(4, 1, 32, 128), torch.zeros(4, 1, 16, 128, dtype=BF16), torch.zeros(4, 1, 32, 48, dtype=BF16)],
    ids=["float32", "half a step in a block", "heads of 24"],
)
def test_what_the_tiles_do_not_take_goes_to_the_reference(cache: torch.Tensor) -> None:
    kv_heads, _, width = cache.shape[1:]
    batch = RaggedBatch([2, 1], [5, 20], [[1], [2, 3]])
    plan = attention.plan_attention(batch, cache)
    assert isinstance(plan, AttentionPlan)
    new = _normal(3, kv_heads, width // 2, dtype=cache.dtype)
    kv_cache.kv_write(new, new, cache, plan.slots)
    assert torch.equal(cache.transpose(1, 2).reshape(-1, width)[plan.slots], torch.cat((new, new), -1).squeeze(1))
    got = attention.paged_attention(new, cache, plan, 0.2)
    assert torch.equal(got, reference.paged_attention(new, cache, plan, 0.2))


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 32), (BF16, 24)], ids=["float32", "24 wide"])
def test_rows_that_are_no_whole_vectors_go_to_the_reference(dtype: torch.dtype, width: int) -> None:
    x, weight = _normal(3, width, dtype=dtype), _normal(width, dtype=dtype)
    assert torch.equal(elementwise.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    gate_up = _normal(3, 2 * width, dtype=dtype)
    assert torch.equal(elementwise.silu_mul(gate_up), reference.silu_mul(gate_up))
    assert torch.equal(elementwise.gelu_mul(gate_up), reference.gelu_mul(gate_up))
    normed, expected = gate_up.clone(), gate_up.clone()
    elementwise.head_norm(normed, *2 * [weight], 0, 1e-5)
    reference.head_norm(expected, *2 * [weight], 0, 1e-5)
    assert torch.equal(normed, expected)
    assert torch.equal(elementwise.argmax(x), reference.argmax(x))
