"""With tokens proposed from the text before, output is what it is without, greedy or drawn, however scheduled."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams

pytestmark = pytest.mark.timeout(900)

MAX_TOKENS = 20
PARAMS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0},
    {"temperature": 0.4},
    {"temperature": 0.0, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    {"temperature": 0.5, "min_p": 0.1, "repetition_penalty": 1.05},
    {"temperature": 0.0, "logit_bias": ((28, 1.5),)},
    {"temperature": 0.0, "min_tokens": 12, "logprobs": 2},
)


def requests(prompts: list[list[int]]) -> list[Request]:
    """Twelve that quote themselves: each prompt says its text twice and begins it once more."""
    texts = [prompts[14][3 * i : 3 * i + 24 + i] for i in range(12)]
    made = []
    for i, text in enumerate(texts):
        params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, **PARAMS[i % len(PARAMS)])
        made.append(Request(RequestSpec(f"r{i}", [*text, *text, *text[:5]], params, seed=i)))
    return made


@pytest.fixture(scope="module")
def plain(engine: Any, prompts: list[list[int]]) -> list[Request]:
    """One at a time, each token sampled for itself."""
    submitted = requests(prompts)
    for request in submitted:
        engine.play(engine.scheduler(speculative="off"), [request])
    return submitted


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_batched_tokens": 31, "max_num_seqs": 8},
        {"max_batched_tokens": 33, "max_num_seqs": 8},
        {"force_preempt_every": 3},
        {"force_preempt_every": 3, "preemption": "swap", "host_blocks": 64},
        {"num_blocks": 10},
        {"prefix_cache": True},
        {"overlap": True},
    ],
    ids=str,
)
def test_output_is_that_of_single_tokens(
    settings: dict[str, Any], engine: Any, prompts: list[list[int]], plain: list[Request]
) -> None:
    scheduler = engine.scheduler(speculative="ngram", **settings)
    for _ in range(2 if settings.get("prefix_cache") else 1):
        submitted = requests(prompts)
        engine.play(scheduler, submitted)
        assert [request.output for request in submitted] == [request.output for request in plain]
    assert scheduler.counters.accepted_tokens["lookup"] > 0
    for ours, theirs in zip(submitted, plain, strict=True):
        assert [(t.token, t.rank) for t in ours.logprobs] == [(t.token, t.rank) for t in theirs.logprobs]
        assert [t.logprob for t in ours.logprobs] == pytest.approx([t.logprob for t in theirs.logprobs], abs=1e-3)


def test_alone_it_takes_fewer_steps(engine: Any, prompts: list[list[int]], plain: list[Request]) -> None:
    num_steps = 0
    for request, expected in zip(requests(prompts), plain, strict=True):
        scheduler = engine.scheduler(speculative="ngram")
        request.spec = replace(request.spec, params=replace(request.params))
        engine.play(scheduler, [request])
        assert request.output == expected.output
        num_steps += int(scheduler.counters.steps.total[0])
    assert num_steps < 0.9 * len(plain) * MAX_TOKENS
