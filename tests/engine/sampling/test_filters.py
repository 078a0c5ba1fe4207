"""Top-k, top-p and min-p against a plain loop over one row."""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paternoster_engine.sampling.filters import Filters, find_thresholds


def _plain(scores: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """Indices kept, ties with the last one kept included."""
    ranked = sorted(scores, reverse=True)
    kth = ranked[top_k - 1] if 0 < top_k <= len(ranked) else ranked[-1]
    scores_left = [score for score in ranked if score >= kth]
    weights = torch.tensor(scores_left, dtype=torch.float64).softmax(-1).tolist()
    before, last = 0.0, scores_left[0]
    for score, weight in zip(scores_left, weights, strict=True):
        if top_p < 1 and before >= top_p:
            break
        last, before = score, before + weight
    floor = ranked[0] + (torch.tensor(min_p, dtype=torch.float64).log().item() if min_p else float("-inf"))
    return {i for i, score in enumerate(scores) if score >= max(kth, last, floor)}


rows = st.lists(st.integers(-20, 20).map(lambda x: x / 4), min_size=2, max_size=40)
# Odd fractions, so that no sum of these probabilities lands on the edge.
filters = st.tuples(
    st.integers(0, 50),
    st.sampled_from([0.0, 0.0123, 0.3137, 0.7719, 0.9531, 1.0]),
    st.sampled_from([0.0, 0.0371, 0.5003]),
)


@settings(max_examples=300, deadline=None)
@example([([0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 4.25, 4.25, 4.75], (5, 0.3137, 0.0))], (4, 8))  # top-k beyond the first width
@given(st.lists(st.tuples(rows, filters), min_size=1, max_size=4), st.sampled_from([(), (1,), (4, 8), (256,)]))
def test_equals_the_plain_filter(cases: list, widths: tuple[int, ...]) -> None:
    size = max(len(row) for row, _ in cases)
    padded = [row + [-60.0] * (size - len(row)) for row, _ in cases]
    scores = torch.tensor(padded)
    settings = Filters(*(torch.tensor([[chosen[i]] for _, chosen in cases]) for i in range(3)))
    is_left = scores >= find_thresholds(scores, settings, widths)
    for i, (_, chosen) in enumerate(cases):
        assert set(is_left[i].nonzero().flatten().tolist()) == _plain(padded[i], *chosen)
