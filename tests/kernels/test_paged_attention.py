"""Paged attention and the cache write against attention written out for one token at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_kernels import RaggedBatch, pick_invariant, pick_kernel
from paternoster_kernels.device_batch import plan_attention as device_plan
from paternoster_kernels.reference.unified_attention import unified_attention

CPU = torch.device("cpu")
HEAD_DIM = 8


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], list[int], int, int, int]:
    count = draw(st.integers(1, 6))
    seq_lens = [draw(st.integers(1, 70)) for _ in range(count)]
    query_lens = [draw(st.one_of(st.just(1), st.integers(1, seq_len))) for seq_len in seq_lens]
    return (
        query_lens,
        seq_lens,
        draw(st.sampled_from([1, 3, 16])),
        draw(st.sampled_from([1, 3])),
        draw(st.integers(1, 3)),
    )


@settings(max_examples=60, deadline=None)
@given(steps(), st.integers(0, 2**31))
def test_equals_attention_token_by_token(step: tuple[list[int], list[int], int, int, int], seed: int) -> None:
    query_lens, seq_lens, block_size, kv_heads, group = step
    generator = torch.Generator().manual_seed(seed)
    keys, values, queries = (
        [torch.randn(n, heads, HEAD_DIM, generator=generator) for n in seq_lens]
        for heads in (kv_heads, kv_heads, kv_heads * group)
    )
    counts = [-(-n // block_size) for n in seq_lens]
    ids = (1 + torch.randperm(sum(counts), generator=generator)).tolist()
    tables = [[ids.pop() for _ in range(n)] for n in counts]
    # Whatever an unused slot holds must not matter, as long as it is finite.
    cache = torch.full((sum(counts) + 1, kv_heads, block_size, 2 * HEAD_DIM), 1e4)

    def write(starts: list[int], stops: list[int]) -> object:
        lens = [stop - start for start, stop in zip(starts, stops, strict=True)]
        used = [i for i, n in enumerate(lens) if n]
        batch = RaggedBatch([lens[i] for i in used], [stops[i] for i in used], [tables[i] for i in used])
        plan = pick_kernel("plan_attention", CPU)(batch, cache)
        chunk = [torch.cat([rows[i][starts[i] : stops[i]] for i in used]) for rows in (keys, values)]
        pick_kernel("kv_write", CPU)(*chunk, cache, plan.slots)
        return plan

    starts = [n - q for n, q in zip(seq_lens, query_lens, strict=True)]
    if any(starts):
        write([0] * len(starts), starts)
    plan = write(starts, seq_lens)
    new = torch.cat([rows[start:] for rows, start in zip(queries, starts, strict=True)])
    got = pick_kernel("paged_attention", CPU)(new, cache, plan, 0.3)

    expected = []
    for q, k, v, start in zip(queries, keys, values, starts, strict=True):
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        for i in range(start, len(q)):
            weights = (torch.einsum("hd,nhd->hn", q[i], k[: i + 1]) * 0.3).softmax(-1)
            expected.append(torch.einsum("hn,nhd->hd", weights, v[: i + 1]))
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-4, atol=1e-5)


@settings(max_examples=60)
@given(
    steps(),
    st.none() | st.integers(1, 80),
    st.none() | st.sampled_from([0.5, 5.0]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_windows_caps_and_sinks(
    step: tuple[list[int], list[int], int, int, int],
    window: int | None,
    softcap: float | None,
    sunk: bool,
    invariant: bool,
    seed: int,
) -> None:
    """The oracle of the device kernels, which goes sequence by sequence, has the same."""
    query_lens, seq_lens, block_size, kv_heads, group = step
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-n // block_size) for n in seq_lens]
    cache = torch.randn(sum(counts) + 1, kv_heads, block_size, 2 * HEAD_DIM, generator=generator)
    ids = (1 + torch.randperm(sum(counts), generator=generator)).tolist()
    batch = RaggedBatch(query_lens, seq_lens, [[ids.pop() for _ in range(n)] for n in counts])
    queries = torch.randn(sum(query_lens), kv_heads * group, HEAD_DIM, generator=generator)
    choose = pick_invariant if invariant else pick_kernel
    plan, attend = (choose(op, CPU) for op in ("plan_attention", "paged_attention"))
    planned = plan(batch, cache)
    sinks = torch.randn(kv_heads * group, generator=generator) if sunk else None
    options = {"window": window, "softcap": softcap, "sinks": sinks}
    expected = unified_attention(queries, cache, device_plan(batch, cache), 0.3, **options)
    for _ in range(2):
        got = attend(queries, cache, planned, 0.3, **options)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_decodes_of_like_length_share_a_call() -> None:
    cache = torch.zeros(65, 1, 4, 8)
    seq_lens = [40, 40, 32, 8, 4, 3]
    batch = RaggedBatch([1] * 6, seq_lens, [list(range(1, 11))] * 6)
    plan = pick_kernel("plan_attention", CPU)(batch, cache)
    assert [(group.rows.start, group.rows.stop) for group in plan.decodes] == [(0, 3), (3, 4), (4, 6)]
    assert not plan.prefills


@given(st.lists(st.integers(1, 500), min_size=1, max_size=64))
def test_padding_is_less_than_half(seq_lens: list[int]) -> None:
    block_size = 8
    seq_lens.sort(reverse=True)
    tables = [list(range(1, 64))] * len(seq_lens)
    plan = pick_kernel("plan_attention", CPU)(
        RaggedBatch([1] * len(seq_lens), seq_lens, tables), torch.zeros(64, 1, 8, 2)
    )
    used = sum(-(-n // block_size) for n in seq_lens)
    assert used <= sum(len(group.pages) for group in plan.decodes) < 2 * used
    assert len(plan.decodes) <= 6  # the longest has 63 blocks: one group for each halving


def test_unknown_operation() -> None:
    with pytest.raises(KeyError, match="flash"):
        pick_kernel("flash", CPU)
