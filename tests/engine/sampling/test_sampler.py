"""The sampler: exact distributions, penalties by their definition, and no dependence on the batch."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.sampler import Sampler

VOCAB = 50
SAMPLER = Sampler(VOCAB, torch.device("cpu"))


def _request(seed: int = 0, prompt: list[int] | None = None, output: list[int] | None = None, **params) -> Request:
    params = {"max_tokens": 100, **params}
    return Request(
        RequestSpec("r", prompt or [1], SamplingParams(**params), seed=seed, eos_token_ids=(2,)), output=output or []
    )


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 9, "top_p": 0.8}],
    ids=str,
)
def test_draws_with_the_exact_probabilities(params: dict) -> None:
    draws = 20_000
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 2
    scores = logits.double() / params.get("temperature", 1.0)
    order = scores.argsort(descending=True)
    top_indices = order[: params.get("top_k", VOCAB)]
    probability = scores[top_indices].softmax(-1)
    in_top_p = (probability.cumsum(-1) - probability < params.get("top_p", 1.0)) & (
        probability >= params.get("min_p", 0.0) * probability[0]
    )
    probability = torch.zeros(VOCAB, dtype=torch.float64).index_copy(
        0, top_indices[in_top_p], scores[top_indices[in_top_p]].softmax(-1)
    )

    requests = [_request(seed=seed, **params) for seed in range(draws)]
    tokens = SAMPLER.sample(logits.expand(draws, -1), requests)
    counts = torch.bincount(torch.tensor(tokens), minlength=VOCAB).double()
    assert counts[probability == 0].sum() == 0
    often = probability * draws >= 5
    rest = torch.tensor([counts[~often].sum(), probability[~often].sum() * draws])
    observed, expected = torch.cat((counts[often], rest[:1])), torch.cat((probability[often] * draws, rest[1:] + 1e-9))
    degrees = int(often.sum())
    assert ((observed - expected) ** 2 / expected).sum() < degrees + 5 * math.sqrt(2 * degrees) + 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_row_does_not_depend_on_the_others(seed: int, count: int) -> None:
    pick = random.Random(seed)
    logits = torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    requests = [
        _request(
            seed=pick.randrange(2**64),
            output=[pick.randrange(VOCAB) for _ in range(pick.randrange(5))],
            temperature=pick.choice([0.0, 0.5, 1.3]),
            top_k=pick.choice([0, 3]),
            top_p=pick.choice([1.0, 0.9]),
            repetition_penalty=pick.choice([1.0, 1.2]),
            logit_bias=pick.choice([(), ((0, 3.0), (1, -100.0), (49, 0.5))]),
            min_tokens=pick.choice([0, 9]),
        )
        for _ in range(count)
    ]
    alone = [SAMPLER.sample(logits[i : i + 1], requests[i : i + 1])[0] for i in range(count)]
    order = pick.sample(range(count), count)
    shuffled = SAMPLER.sample(logits[order], [requests[i] for i in order])
    assert shuffled == [alone[i] for i in order]


def test_next_position_draws_anew() -> None:
    logits = torch.zeros(1, VOCAB)
    drawn = {SAMPLER.sample(logits, [_request(seed=3, output=[0] * n)])[0] for n in range(40)}
    assert len(drawn) > 20


def test_greedy_takes_the_best() -> None:
    logits = torch.randn(3, VOCAB)
    assert SAMPLER.sample(logits, [_request(temperature=0.0)] * 3) == logits.argmax(-1).tolist()


def _greedy_with(logits: list[float], **params) -> int:
    row = torch.full((1, VOCAB), -10.0)
    row[0, : len(logits)] = torch.tensor(logits)
    return SAMPLER.sample(row, [_request(temperature=0.0, **params)])[0]


def test_presence_penalty_counts_output_once() -> None:
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], output=[3, 3], presence_penalty=0.4) == 3
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], output=[3, 3], presence_penalty=0.6) == 4
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], prompt=[3], presence_penalty=0.6) == 3


def test_frequency_penalty_counts_every_time() -> None:
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], output=[3], frequency_penalty=0.3) == 3
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], output=[3, 3], frequency_penalty=0.3) == 4


def test_repetition_penalty_divides_good_and_multiplies_bad_logits() -> None:
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.6], prompt=[3], repetition_penalty=2.0) == 4
    assert _greedy_with([-2.0, -9.0, -9.0, -1.5], output=[3], repetition_penalty=2.0) == 0


def test_a_bias_is_added_before_penalties() -> None:
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], logit_bias=((4, 0.4),)) == 3
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], logit_bias=((4, 0.6),)) == 4
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 0.5], logit_bias=((3, -100.0),)) == 4
    # (1 + 1) / 2 is below 1.4, and 1 / 2 + 1 would be above.
    assert _greedy_with([0.0, 0.0, 0.0, 1.0, 1.4], output=[3], logit_bias=((3, 1.0),), repetition_penalty=2.0) == 4
    # No bias brings back what may not be.
    assert _greedy_with([0.0, 0.0, 5.0, 1.0], logit_bias=((2, 100.0),), min_tokens=2, output=[0]) == 3


def test_biases_of_a_bfloat16_batch_leave_other_rows_and_the_logits_alone() -> None:
    logits = torch.zeros(3, VOCAB, dtype=torch.bfloat16)
    logits[:, 7] = 1.0
    before = logits.clone()
    plain = _request(temperature=0.0)
    requests = [plain, _request(temperature=0.0, logit_bias=((9, 1.5), (7, -0.25))), plain]
    assert SAMPLER.sample(logits, requests) == [7, 9, 7]
    assert torch.equal(logits, before)


def test_min_tokens_rules_out_the_end() -> None:
    best_is_eos = [0.0, 0.0, 5.0, 1.0, 4.0]
    assert _greedy_with(best_is_eos, min_tokens=2, output=[0]) == 4
    assert _greedy_with(best_is_eos, min_tokens=2, output=[0], stop_token_ids=(4,)) == 3
    assert _greedy_with(best_is_eos, min_tokens=2, output=[0, 0]) == 2


def test_leaves_the_logits_as_they_are() -> None:
    logits = torch.randn(1, VOCAB)
    before = logits.clone()
    SAMPLER.sample(logits, [_request(presence_penalty=1.0, output=[4], min_tokens=4)])
    assert torch.equal(logits, before)
