"""Log probabilities of the engine are transformers' to 1e-3 in float32, however the requests are scheduled."""

from typing import Any

import pytest
import torch

from paternoster_engine.core.request import TokenLogprobs

pytestmark = pytest.mark.timeout(900)

CHOSEN = (0, 4, 6, 9, 15, 17)
"""Prompts of 1, 20, 32, 63, 97 and 128 tokens: blocks are of 32."""
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def few(prompts: list[list[int]]) -> list[list[int]]:
    return [prompts[i] for i in CHOSEN]


def _check(entry: TokenLogprobs, token: int, theirs: torch.Tensor, num_top: int) -> None:
    assert entry.token == token
    assert entry.logprob == pytest.approx(theirs[token].item(), abs=TOLERANCE)
    # Its place among the others, but for those that are as likely to within the tolerance.
    assert (theirs > entry.logprob + TOLERANCE).sum() < entry.rank <= (theirs > entry.logprob - TOLERANCE).sum() + 1
    assert [logprob for _, logprob in entry.top] == pytest.approx(theirs.topk(num_top).values.tolist(), abs=TOLERANCE)
    assert [logprob for _, logprob in entry.top] == pytest.approx(
        [theirs[i].item() for i, _ in entry.top], abs=TOLERANCE
    )


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        ({}, {"temperature": 0.8, "top_p": 0.9, "presence_penalty": 1.0}),
        ({"max_batched_tokens": 33, "max_num_seqs": 16, "prefix_cache": True}, {"temperature": 0.0}),
        ({"force_preempt_every": 3, "prefix_cache": True}, {"temperature": 0.8}),
    ],
    ids=["sampled-with-penalties", "chunked-at-block-edges", "preempted"],
)
def test_every_token_of_prompt_and_output(
    engine: Any, few: list[list[int]], scores: Any, settings: dict[str, Any], sampling: dict[str, float]
) -> None:
    """Settings of the sampler do not show: log probabilities are the model's before them."""
    scheduler = engine.scheduler(**settings)
    for request in engine.requests(scheduler, few, logprobs=5, prompt_logprobs=2, **sampling):
        after = scores([*request.prompt, *request.output])
        entries = [*request.prompt_logprobs, *request.logprobs]
        assert len(request.prompt_logprobs) == request.num_prompt - 1
        assert len(request.logprobs) == len(request.output)
        for index, (token, logprobs) in enumerate(zip([*request.prompt[1:], *request.output], entries, strict=True)):
            _check(logprobs, token, after[index], 2 if index < request.num_prompt - 1 else 5)


def test_a_cached_prompt_is_computed_again_only_for_who_asks(engine: Any, few: list[list[int]], scores: Any) -> None:
    scheduler = engine.scheduler(prefix_cache=True)
    (first,) = engine.requests(scheduler, few[-1:], temperature=0.0)
    assert first.prompt_logprobs == first.logprobs == []
    computed = scheduler.counters.computed_tokens
    (second,) = engine.requests(scheduler, few[-1:], temperature=0.0, logprobs=0)
    assert second.num_cached == (second.num_prompt - 1) // 32 * 32
    (third,) = engine.requests(scheduler, few[-1:], temperature=0.0, prompt_logprobs=0)
    assert third.num_cached == 0
    assert first.output == second.output == third.output
    assert (
        scheduler.counters.computed_tokens - computed
        == second.num_prompt - second.num_cached + 19 + third.num_prompt + 19
    )
    after = scores([*third.prompt, *third.output])
    for index, (token, logprobs) in enumerate(zip(third.prompt[1:], third.prompt_logprobs, strict=True)):
        _check(logprobs, token, after[index], 0)


def test_neighbours_that_do_not_ask_are_told_nothing_and_say_the_same(engine: Any, few: list[list[int]]) -> None:
    quiet = engine.run(engine.scheduler(), few, temperature=0.8)
    assert engine.run(engine.scheduler(), few, temperature=0.8, logprobs=3, prompt_logprobs=1) == quiet
