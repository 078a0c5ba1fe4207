"""The oracles themselves: against other ways to the same result, and against what the engine does today."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.sampling.filters import Filters, find_thresholds
from paternoster_engine.sampling.random import gumbel_noise as engine_noise
from paternoster_engine.sampling.random import row_keys
from paternoster_kernels import RaggedBatch, reference
from paternoster_kernels.device_batch import plan_attention
from paternoster_kernels.reference.quantized_matmul import quantize_int4, quantize_weight
from paternoster_kernels.reference.sample import find_threshold, gumbel_noise


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=5), st.integers(0, 2**31))
def test_unified_attention_equals_torch_sdpa(shapes: list[tuple[int, int]], seed: int) -> None:
    """Two independent ways over one cache; the other one gathers pages and calls torch's attention."""
    generator = torch.Generator().manual_seed(seed)
    query_lens = [new for new, _ in shapes]
    seq_lens = [new + before for new, before in shapes]
    counts = [-(-length // 16) for length in seq_lens]
    ids = (1 + torch.randperm(sum(counts), generator=generator)).tolist()
    batch = RaggedBatch(query_lens, seq_lens, [[ids.pop() for _ in range(count)] for count in counts])
    cache = torch.randn(sum(counts) + 1, 2, 16, 2 * 8, generator=generator, dtype=torch.float64)
    queries = torch.randn(sum(query_lens), 6, 8, generator=generator, dtype=torch.float64)
    expected = reference.paged_attention(queries, cache, reference.plan_attention(batch, cache), 0.3)
    plan = plan_attention(batch, cache)
    torch.testing.assert_close(reference.unified_attention(queries, cache, plan, 0.3), expected, rtol=1e-9, atol=1e-9)
    # A window that holds everything, and a cap far above every score, change nothing.
    wide = reference.unified_attention(queries, cache, plan, 0.3, window=100, softcap=1e6)
    torch.testing.assert_close(wide, expected, rtol=1e-6, atol=1e-6)
    # With a window of one a token sees itself alone.
    own = cache[plan.slots // 16, :, plan.slots % 16, 8:].repeat_interleave(3, 1)
    torch.testing.assert_close(reference.unified_attention(queries, cache, plan, 0.3, window=1), own)


def test_head_norm_is_the_norm_of_every_query_and_key() -> None:
    generator = torch.Generator().manual_seed(4)
    heads, kv_heads, head_dim = 5, 2, 8
    before = torch.randn(3, (heads + 2 * kv_heads) * head_dim, generator=generator, dtype=torch.float64)
    weights = torch.randn(2, head_dim, generator=generator, dtype=torch.float64)
    after = before.clone()
    reference.head_norm(after, *weights, kv_heads, 1e-6)
    for head in range(heads + kv_heads):
        columns = slice(head * head_dim, (head + 1) * head_dim)
        expected = reference.rms_norm(before[:, columns], weights[int(head >= heads)], 1e-6)
        torch.testing.assert_close(after[:, columns], expected)
    values = slice((heads + kv_heads) * head_dim, None)
    assert torch.equal(after[:, values], before[:, values])


def test_slots_are_where_the_plan_of_the_reference_writes() -> None:
    cache = torch.zeros(7, 2, 4, 6)
    batch = RaggedBatch([3, 1, 5], [3, 9, 7], [[4], [1, 6, 2], [5, 3]])
    keys, values = torch.randn(9, 2, 3), torch.randn(9, 2, 3)
    reference.kv_write(keys, values, cache, reference.plan_attention(batch, cache).slots)
    slots = plan_attention(batch, cache).slots
    assert torch.equal(cache[slots // 4, :, slots % 4], torch.cat((keys, values), -1))


def test_rope_kv_write_is_rope_then_kv_write() -> None:
    torch.manual_seed(3)
    tokens, heads, kv_heads, head_dim = 6, 6, 2, 8
    batch = RaggedBatch([2, 1, 3], [6, 5, 3], [[4, 1], [2, 6], [5]])
    cache, other = torch.zeros(7, kv_heads, 4, 2 * head_dim), torch.zeros(7, kv_heads, 4, 2 * head_dim)
    positions = torch.tensor([4, 5, 4, 0, 1, 2])
    angles = torch.rand(10, head_dim // 2) * 6
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim)
    split = qkv.clone().view(tokens, -1, head_dim)
    cos, sin = angles.cos()[positions], angles.sin()[positions]
    reference.rope(split[:, :-kv_heads], torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None])
    reference.kv_write(
        split[:, heads:-kv_heads], split[:, -kv_heads:], other, reference.plan_attention(batch, other).slots
    )

    table = torch.cat((angles.cos(), angles.sin()), -1)
    reference.rope_kv_write(qkv, positions, table, cache, plan_attention(batch, cache).slots)
    torch.testing.assert_close(qkv[:, : heads * head_dim], split[:, :heads].flatten(1))
    torch.testing.assert_close(cache, other)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)), min_size=1, max_size=5))
def test_noise_is_the_engine_s(rows: list[tuple[int, int]]) -> None:
    seeds, positions = zip(*rows, strict=True)
    device = torch.device("cpu")
    expected = engine_noise(row_keys(seeds, positions, device), torch.arange(70, dtype=torch.int32)[None])
    assert torch.equal(gumbel_noise(torch.tensor(seeds), torch.tensor(positions), 70), expected)


@settings(deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([1.0, 0.0, 0.31, 0.9]), st.sampled_from([0.0, 0.013, 0.1, 1.0])),
        min_size=1,
        max_size=6,
    ),
)
def test_thresholds_are_the_engine_s(seed: int, rows: list[tuple[int, float, float]]) -> None:
    scores = 3 * torch.randn(len(rows), 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores[0, :7] = float("-inf")
    top_k, top_p, min_p = (torch.tensor(column) for column in zip(*rows, strict=True))
    expected = find_thresholds(scores, Filters(top_k[:, None], top_p[:, None], min_p[:, None]))
    got = find_threshold(scores, top_k, top_p, min_p)
    assert torch.equal(scores >= got[:, None], scores >= expected)


def test_draws_follow_the_softmax() -> None:
    """Chi-squared of 20,000 draws over 6 tokens; 5 degrees of freedom exceed 30.9 once in 100,000 runs."""
    rows, row = 20_000, torch.tensor([[1.0, 0.0, -1.0, 2.0, 0.5, 1.5]])
    same = torch.ones(rows)
    tokens = reference.sample(
        row.expand(rows, -1), same, torch.zeros(rows), same, 0 * same, torch.full((rows,), 42), torch.arange(rows)
    )
    expected = rows * row[0].double().softmax(0)
    counts = torch.bincount(tokens, minlength=6).double()
    assert ((counts - expected) ** 2 / expected).sum() < 30.9


@pytest.mark.parametrize("group", [32, 64])
def test_int4_is_off_by_half_a_step(group: int) -> None:
    weight = torch.randn(5, 128)
    packed, scales, zeros = quantize_int4(weight, group)
    assert packed.shape == (5, 64)
    restored = reference.int4_matmul(torch.eye(128), packed, scales, zeros).T
    # The zero point is rounded too: another half step.
    assert ((restored - weight).abs() <= scales.repeat_interleave(group, 1) * 1.001).all()


@pytest.mark.parametrize(("group", "inputs"), [(16, 64), (48, 96), (64, 96)])
def test_int4_refuses_a_group_that_does_not_fit(group: int, inputs: int) -> None:
    with pytest.raises(ValueError, match=f"group is {group} for {inputs} inputs"):
        quantize_int4(torch.zeros(2, inputs), group)


@pytest.mark.parametrize(("dtype", "step"), [(torch.int8, 0.5 / 127), (torch.float8_e4m3fn, 2.0**-4)])
def test_eight_bits_are_off_by_half_a_step(dtype: torch.dtype, step: float) -> None:
    weight = torch.randn(5, 128)
    weight[3] = 0
    stored, scales = quantize_weight(weight, dtype)
    restored = reference.weight_only_matmul(torch.eye(128), stored, scales).T
    assert ((restored - weight).abs() <= weight.abs().amax(1, keepdim=True) * step * 1.001).all()


def test_eight_bit_weights_name_their_formats() -> None:
    with pytest.raises(ValueError, match=r"torch\.int8, torch\.float8_e4m3fn"):
        quantize_weight(torch.zeros(2, 2), torch.float16)


def test_argmax_takes_the_first_of_equals() -> None:
    assert reference.argmax(torch.tensor([[0.0, 2, 1, 2], [5, 5, 5, 5]])).tolist() == [1, 0]


def test_gelu_mul() -> None:
    gate_up = torch.randn(3, 16, dtype=torch.float64)
    gate, up = gate_up.chunk(2, -1)
    inner = (2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)
    torch.testing.assert_close(reference.gelu_mul(gate_up), gate * (1 + inner.tanh()) / 2 * up)
