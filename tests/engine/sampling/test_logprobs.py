"""Log probabilities of rows: log-softmax, exactly as the row says and whatever stands beside it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.sampling.continuations import best_continuations
from paternoster_engine.sampling.logprobs import ROWS_AT_ONCE, token_logprobs

VOCAB = 40


def _logits(rows: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, VOCAB - 1), st.integers(0, 20)), min_size=1, max_size=2 * ROWS_AT_ONCE + 3),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_every_row_is_told_by_its_own_logits(seed: int, rows: list[tuple[int, int]], dtype: torch.dtype) -> None:
    logits = _logits(len(rows), seed, dtype)
    before = logits.clone()
    entries = list(token_logprobs(logits, [token for token, _ in rows], [count for _, count in rows]))
    assert torch.equal(logits, before)
    assert len(entries) == len(rows)
    for row, (token, count), logprobs in zip(logits.double().log_softmax(-1), rows, entries, strict=True):
        assert logprobs.token == token
        assert logprobs.logprob == pytest.approx(row[token].item(), abs=1e-5)
        assert logprobs.rank == (row > row[token]).sum() + 1
        assert [value for _, value in logprobs.top] == pytest.approx(row.topk(count).values.tolist(), abs=1e-5)
        assert [row[i].item() for i, _ in logprobs.top] == pytest.approx([v for _, v in logprobs.top], abs=1e-5)
        assert len({i for i, _ in logprobs.top}) == count


def test_equals_share_a_rank() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[1, 7] = logits[2, 9] = logits[2, 7] = 1.0
    entries = list(token_logprobs(logits, [3, 3, 7], [VOCAB, 0, 3]))
    assert [logprobs.rank for logprobs in entries] == [1, 2, 1]
    assert [token for token, _ in entries[0].top] == list(range(VOCAB))
    assert [token for token, _ in entries[2].top[:2]] == [7, 9]
    assert logits[2].argmax() == 7


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_equals_beyond_the_last_are_ordered_by_id_whatever_other_rows_request(seed: int, counts: list[int]) -> None:
    """Nine values over 300 tokens, as bfloat16 makes of likely tokens; all searches select as a stable sort does."""
    logits = torch.randint(-4, 5, (len(counts), 300), generator=torch.Generator().manual_seed(seed)).bfloat16()
    chosen = [0] * len(counts)
    for row, count, logprobs in zip(logits, counts, token_logprobs(logits, chosen, counts), strict=True):
        ids = row.sort(descending=True, stable=True).indices[:count].tolist()
        assert [token for token, _ in logprobs.top] == ids
        (alone,) = token_logprobs(row.unsqueeze(0), [0], [count])
        assert alone == logprobs
    for row, count, best in zip(logits, counts, best_continuations(logits, counts), strict=True):
        assert [token for token, _ in best] == row.sort(descending=True, stable=True).indices[:count].tolist()


def test_a_token_that_is_ruled_out_is_infinitely_unlikely() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 5] = float("-inf")
    (entries,) = token_logprobs(logits, [5], [1])
    assert entries.logprob == float("-inf")
    assert entries.rank == VOCAB
