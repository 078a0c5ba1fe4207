import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_traces import workload
from paternoster_traces.prompts import PromptSource, default_text, read_text
from paternoster_traces.trace import PREFIX_BLOCK_TOKENS, TraceRow, read_trace
from paternoster_traces.workload import Limits

ROWS = [TraceRow(float(i), 10 * i + 1, i + 1) for i in range(5)]


@given(
    prompt=st.integers(1, 5000),
    output=st.integers(1, 5000),
    max_prompt=st.none() | st.integers(1, 600),
    min_output=st.integers(1, 8),
    max_output=st.none() | st.integers(8, 600),
    max_total=st.none() | st.integers(16, 2048),
)
def test_clipped_lengths_are_within_every_bound(prompt, output, max_prompt, min_output, max_output, max_total):
    row = Limits(max_prompt, max_output, min_output, max_total).clip_row(TraceRow(0.0, prompt, output))
    assert 1 <= row.prompt_tokens <= min(prompt, max_prompt or prompt)
    assert min_output <= row.output_tokens <= max(output, min_output)
    assert row.output_tokens <= (max_output or row.output_tokens)
    assert row.prompt_tokens + row.output_tokens <= (max_total or row.prompt_tokens + row.output_tokens)


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"max_prompt": 0}, "max-prompt-tokens is 0: must be at least 1"),
        ({"max_output": 4, "min_output": 5}, "max-output-tokens is 4: must be at least 5"),
        ({"max_total": 8, "min_output": 8}, "context is 8: must be above 8"),
    ],
)
def test_impossible_limits_are_refused(limits, complaint):
    with pytest.raises(ValueError, match=complaint):
        Limits(**limits)


def test_sample_draws_without_repetition_and_needs_enough_rows():
    drawn = workload.sample_rows(ROWS, 5, seed=3)
    assert sorted(row.prompt_tokens for row in drawn) == [row.prompt_tokens for row in ROWS]
    assert {row.arrival_s for row in drawn} == {0.0}
    with pytest.raises(ValueError, match="num-prompts is 6: must be at most 5"):
        workload.sample_rows(ROWS, 6, seed=3)


def test_the_standard_workload_has_the_published_size():
    folder = Path(os.environ.get("PATERNOSTER_TRACES", Path(__file__).parents[4] / "shared/traces"))
    if not folder.is_dir():
        pytest.skip("no folder of traces: set PATERNOSTER_TRACES")
    rows = workload.standardize_rows(read_trace(folder / "azure_llm_2023_conv.csv"))
    assert sum(row.prompt_tokens for row in rows) == 27_841
    assert sum(row.output_tokens for row in rows) == 9_971


def test_endless_repeats_at_the_mean_gap():
    times = [row.arrival_s for row in itertools.islice(workload.repeat_rows(ROWS), 12)]
    assert times == [float(i) for i in range(12)]


def test_retime_keeps_the_lengths_and_sets_the_rate():
    rows = workload.retime_rows([ROWS[0]] * 4000, rate=20.0, burstiness=1.0, seed=0)
    assert 4000 / rows[-1].arrival_s == pytest.approx(20, rel=0.1)
    assert {row.arrival_s for row in workload.retime_rows(ROWS, rate=np.inf, burstiness=1.0, seed=0)} == {0.0}
    with pytest.raises(ValueError, match="request-rate is 0: must be above 0"):
        workload.retime_rows(ROWS, rate=0, burstiness=1.0, seed=0)
    with pytest.raises(ValueError, match="burstiness is -1: must be above 0"):
        workload.retime_rows(ROWS, rate=1, burstiness=-1, seed=0)


@given(index=st.integers(0, 1000), length=st.integers(1, 3000), size=st.integers(1, 700))
def test_prompts_have_the_exact_length_and_are_stretches_of_the_text(index, length, size):
    source = PromptSource(range(size), seed=1)
    prompt = source.make_prompt(index, length)
    assert len(prompt) == length
    assert all(b == (a + 1) % size for a, b in itertools.pairwise(prompt))
    assert prompt == PromptSource(range(size), seed=1).make_prompt(index, length)


def test_equal_prefix_blocks_are_equal_tokens():
    source = PromptSource(range(9973))
    one = source.make_prompt(0, 3 * PREFIX_BLOCK_TOKENS, (5, 6, 7))
    two = source.make_prompt(1, 3 * PREFIX_BLOCK_TOKENS, (5, 6, 8))
    shared = 2 * PREFIX_BLOCK_TOKENS
    assert one[:shared] == two[:shared]
    assert one[shared:] != two[shared:]
    assert len(source.make_prompt(2, 100, (5,))) == 100


def test_prompt_text(tmp_path):
    assert len(default_text().splitlines()) > 200
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"empty\.txt: is empty"):
        read_text(tmp_path / "empty.txt")
    with pytest.raises(ValueError, match=r"nowhere\.txt: cannot be read"):
        read_text(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match="has no tokens"):
        PromptSource([])
