import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_traces.synthetic import AZURE_CONVERSATION, generate_rows
from paternoster_traces.trace import TraceRow, read_trace

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOLERANCE = 0.10


def lengths(rows: list[TraceRow]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row.prompt_tokens for row in rows]), np.array([row.output_tokens for row in rows])


def test_quantiles_rate_and_burstiness_match_the_published_ones():
    rows = generate_rows(20_000, seed=1)
    prompts, outputs = lengths(rows)
    assert np.quantile(prompts, (0.5, 0.9, 0.99)) == pytest.approx((1020, 2735, 4142), rel=TOLERANCE)
    assert np.quantile(outputs, (0.5, 0.9, 0.99)) == pytest.approx((129, 424, 601), rel=TOLERANCE)
    gaps = np.diff([row.arrival_s for row in rows])
    assert 1 / gaps.mean() == pytest.approx(5.53, rel=0.03)
    assert (gaps.mean() / gaps.std()) ** 2 == pytest.approx(AZURE_CONVERSATION.burstiness, rel=0.05)


def test_quantiles_match_the_trace_itself():
    folder = Path(os.environ.get("PATERNOSTER_TRACES", Path(__file__).parents[4] / "shared/traces"))
    if not folder.is_dir():
        pytest.skip("no folder of traces: set PATERNOSTER_TRACES")
    real = read_trace(folder / "azure_llm_2023_conv.csv")
    made = generate_rows(len(real), seed=2)
    for ours, theirs in zip(lengths(made), lengths(real), strict=True):
        assert np.quantile(ours, SHARES) == pytest.approx(np.quantile(theirs, SHARES), rel=TOLERANCE)
        assert ours.mean() == pytest.approx(theirs.mean(), rel=TOLERANCE)

    def rank_correlation(rows: list[TraceRow]) -> float:
        ranks = [values.argsort().argsort() for values in lengths(rows)]
        return float(np.corrcoef(ranks)[0, 1])

    assert rank_correlation(made) == pytest.approx(rank_correlation(real), abs=0.03)


@given(count=st.integers(1, 50), seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_any_seed_gives_usable_rows_and_the_same_ones_again(count, seed):
    rows = generate_rows(count, seed=seed)
    assert rows == generate_rows(count, seed=seed)
    assert len(rows) == count
    assert rows[0].arrival_s == 0
    assert all(a.arrival_s <= b.arrival_s for a, b in itertools.pairwise(rows))
    assert all(2 <= row.prompt_tokens <= 14_050 and 7 <= row.output_tokens <= 1000 for row in rows)


def test_seeds_differ():
    assert generate_rows(5, seed=0) != generate_rows(5, seed=1)
