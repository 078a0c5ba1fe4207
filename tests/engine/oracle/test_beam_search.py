"""Beam search finds what ``generate(num_beams=k)`` of transformers finds, with its scores, however it is scheduled."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest
import torch
from tests.engine.oracle.answer_cache import AnswerCache

from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch, Hypothesis

pytestmark = pytest.mark.timeout(900)

MAX_TOKENS = 24
LENGTHS = (20, 31, 63)
"""Lengths of prompts so that beams begin in a block, at its end, and grow into the next: blocks are of 32."""
TOLERANCE = 1e-3


class Search(NamedTuple):
    width: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    length: int
    """Length of the prompt."""
    ends: str
    """Characters that end an answer, besides the model's own end."""


SEARCHES = (
    Search(2, 1.0, False, 20, ""),
    Search(3, 1.0, True, 31, ".,"),
    Search(4, 2.0, True, 63, "."),
    Search(4, 0.0, False, 31, "."),
    Search(3, -1.0, "never", 63, ".,"),
    Search(2, 0.5, "never", 20, ".,"),
)
Found = list[list[Hypothesis]]


def end_tokens(search: Search, tokenizer: Tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.encode(character)[0] for character in search.ends)


@pytest.fixture(scope="module")
def beginnings(prompts: list[list[int]]) -> dict[int, list[list[int]]]:
    """Three prompts of each length."""
    text = [token for prompt in prompts[-3:] for token in prompt]
    return {length: [text[97 * i : 97 * i + length] for i in range(3)] for length in LENGTHS}


@pytest.fixture(scope="module")
def transformers_beams(
    theirs: Callable[..., Any],
    few_layers: int,
    few_tokens: int,
    answer_cache: AnswerCache,
    tokenizer: Tokenizer,
    beginnings: dict[int, list[list[int]]],
) -> Callable[[Search], Found]:
    """What transformers finds, each search made once; prompts of one length go together."""
    beams_by_search: dict[Search, Found] = {}

    def of(search: Search) -> Found:
        if search not in beams_by_search:
            every_end = [*tokenizer.eos_token_ids, *end_tokens(search, tokenizer)]
            beams_by_search[search] = read(
                search,
                every_end,
                *answer_cache.answer(
                    beams, [few_layers, few_tokens], search, beginnings[search.length], every_end, MAX_TOKENS
                ),
            )
        return beams_by_search[search]

    def beams(
        size: list[int], search: Search, prompts: list[list[int]], every_end: list[int], max_tokens: int
    ) -> tuple[list[list[int]], list[float]]:
        ids = torch.tensor(prompts)
        generated = theirs(*size).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=search.width,
            num_return_sequences=search.width,
            length_penalty=search.length_penalty,
            early_stopping=search.early_stopping,
            eos_token_id=every_end,
            pad_token_id=every_end[0],
            return_dict_in_generate=True,
            output_scores=True,
        )
        return generated.sequences[:, search.length :].tolist(), generated.sequences_scores.tolist()

    def read(search: Search, every_end: list[int], sequences: list[list[int]], scores: list[float]) -> Found:
        found = []
        for tokens, score in zip(sequences, scores, strict=True):
            ended = [place for place, token in enumerate(tokens) if token in every_end]
            reason = FinishReason.STOP if ended else FinishReason.LENGTH
            found.append(Hypothesis(tuple(tokens[: ended[0] + 1] if ended else tokens), score, (), reason))
        return [found[i : i + search.width] for i in range(0, len(found), search.width)]

    return of


@pytest.fixture(scope="module")
def requests(tokenizer: Tokenizer, beginnings: dict[int, list[list[int]]]) -> Any:
    """Makes the requests of a search."""

    def make(search: Search) -> list[Request]:
        params = SamplingParams(
            max_tokens=MAX_TOKENS,
            temperature=0.0,
            stop_token_ids=end_tokens(search, tokenizer),
            logprobs=1,
        )
        beam, ends = BeamParams(search.width, search.length_penalty, search.early_stopping), tokenizer.eos_token_ids
        return [
            Request(
                RequestSpec(f"{search}-{i}", list(prompt), params, eos_token_ids=tuple(ends)),
                branch_selector=BeamSearch(beam, params, ends),
            )
            for i, prompt in enumerate(beginnings[search.length])
        ]

    return make


def check(request: Request, search: Search, expected: list[Hypothesis]) -> None:
    assert isinstance(request.branch_selector, BeamSearch)
    found = request.branch_selector.finished
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]
    assert [hypothesis.finish_reason for hypothesis in found] == [hypothesis.finish_reason for hypothesis in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.score == pytest.approx(theirs.score, abs=TOLERANCE, rel=TOLERANCE)
        # The log probabilities of its tokens are what it is ranked by.
        assert [entry.token for entry in ours.logprobs] == list(ours.tokens)
        total = sum(entry.logprob for entry in ours.logprobs)
        assert total / len(ours.tokens) ** search.length_penalty == pytest.approx(ours.score)
    assert request.output == list(found[0].tokens)
    assert request.finish_reason is found[0].finish_reason


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: "-".join(str(value) for value in search))
def test_answers_and_scores(
    engine: Any, requests: Any, transformers_beams: Callable[[Search], Found], search: Search
) -> None:
    submitted = requests(search)
    engine.play(engine.scheduler(), submitted)
    for request, expected in zip(submitted, transformers_beams(search), strict=True):
        check(request, search, expected)


def test_some_answers_end_and_some_are_cut(transformers_beams: Callable[[Search], Found]) -> None:
    reasons = {found.finish_reason for search in SEARCHES for beams in transformers_beams(search) for found in beams}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize(
    ("settings", "preempts"),
    [
        ({"max_batched_tokens": 33, "max_num_seqs": 12, "prefix_cache": True}, False),
        ({"num_blocks": 18, "max_num_seqs": 24}, True),
        ({"num_blocks": 18, "max_num_seqs": 24, "preemption": "swap", "host_blocks": 40, "prefix_cache": True}, True),
        ({"force_preempt_every": 5, "prefix_cache": True}, True),
        ({"num_blocks": 24, "max_num_seqs": 24, "admission": "no-evict"}, False),
    ],
    ids=["small-chunks", "recompute", "swap", "forced", "no-evict"],
)
def test_beside_others_and_preempted(
    engine: Any,
    requests: Any,
    prompts: list[list[int]],
    transformers_beams: Callable[[Search], Found],
    greedy_of: Callable[[int], list[int]],
    settings: dict[str, Any],
    preempts: bool,
) -> None:
    # Two of each are a crowd, but where it must not fit into the pool.
    count = 3 if preempts else 2
    searches = {search: requests(search)[:count] for search in SEARCHES[:3]}
    greedy = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    others = [Request(RequestSpec(f"o{i}", list(prompts[i]), greedy, seed=i)) for i in (2, 5, 8)[:count]]
    scheduler = engine.scheduler(**settings)
    mixed = [request for three in zip(*searches.values(), others, strict=True) for request in three]
    engine.play(scheduler, mixed)
    assert (scheduler.counters.preemptions > 0) == preempts
    for search, submitted in searches.items():
        for request, expected in zip(submitted, transformers_beams(search)[:count], strict=True):
            check(request, search, expected)
    assert [request.output for request in others] == [greedy_of(request.seed) for request in others]
