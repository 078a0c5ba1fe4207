"""The best next tokens of a row, exactly as the row says and whatever stands beside it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.sampling.continuations import best_continuations

VOCAB = 40


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, VOCAB + 5), min_size=1, max_size=9),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_every_row_is_told_by_its_own_logits(seed: int, counts: list[int], dtype: torch.dtype) -> None:
    logits = (torch.randn(len(counts), VOCAB, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
    before = logits.clone()
    continuations = list(best_continuations(logits, counts))
    assert torch.equal(logits, before)
    for row, count, best in zip(logits.double().log_softmax(-1), counts, continuations, strict=True):
        count = min(count, VOCAB)
        assert len(best) == count == len({token for token, _ in best})
        assert [logprob for _, logprob in best] == pytest.approx(row.topk(count).values.tolist(), abs=1e-5)
        assert [row[token].item() for token, _ in best] == pytest.approx([value for _, value in best], abs=1e-5)


def test_of_equals_the_lower_id_comes_first() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 30] = 1.0
    (best,) = best_continuations(logits, [VOCAB])
    assert [token for token, _ in best] == [30, *(token for token in range(VOCAB) if token != 30)]
