"""A thought has as many tokens as its budget at most, to the token, however its tokens are proposed."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.grammars.free_text import Thought
from paternoster_engine.sampling.grammars.lazy import SeenTokens
from paternoster_engine.sampling.sampler import Sampler
from paternoster_engine.sampling.thinking_budget import ThinkingBudget

WORDS = [b"<think>", b"</", b"think>", b"a", b" b", b"\n", b"END", b"</think>"]
BEGIN, SLASH, REST, A, B, NEWLINE, END, WHOLE = range(len(WORDS))
SEEN = SeenTokens(len(WORDS), WORDS.__getitem__)


def request(limit: int, begun: bool, end: tuple[int, ...], **params: Any) -> Request:
    budget = ThinkingBudget(limit, Thought("<think>", "</think>", begun), end, SEEN)
    settled = SamplingParams(**{"max_tokens": 99, "temperature": 0.0, **params})
    return Request(RequestSpec("r", [A], settled, eos_token_ids=(END,)), matcher=budget)


def answer(request: Request, wanted: list[int], proposals: list[list[int]]) -> list[int]:
    """The answer where the model wants ``wanted``, token by token; ``proposals`` are verified in turns."""
    sampler = Sampler(len(WORDS), torch.device("cpu"))
    while len(request.output) < len(wanted):
        assert request.matcher is not None
        proposed = [*request.matcher.forced_tokens(request)] or (proposals.pop() if proposals else [])
        proposed = proposed[: request.matcher.count_accepted(request, proposed)][
            : len(wanted) - len(request.output) - 1
        ]
        rows = [request, *(ProposedRow(request, proposed[: i + 1]) for i in range(len(proposed)))]
        logits = torch.zeros(len(rows), len(WORDS))
        for i, row in enumerate(rows):
            logits[i, wanted[len(row.output)]] = 1.0
        tokens = sampler.sample(logits, rows)
        right = 0
        while right < len(proposed) and proposed[right] == tokens[right]:
            right += 1
        request.output += tokens[: right + 1]
    return request.output


def expected(limit: int, begun: bool, end: tuple[int, ...], wanted: list[int]) -> list[int]:
    """Tokens that follow from the whole text, read anew for each token."""
    tokens: list[int] = []
    for token in wanted:
        text, starts = b"", 0
        thinking = begun
        for place, each in enumerate(tokens):
            text += WORDS[each]
            if not thinking and text.lstrip().startswith(b"<think>"):
                thinking, starts, text = True, place + 1, text.lstrip()[7:]
        over = thinking and b"</think>" in text
        spent = len(tokens) - starts
        tokens.append(end[spent - limit] if thinking and not over and spent >= limit else token)
    return tokens


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 6),
    st.booleans(),
    st.sampled_from([(WHOLE,), (SLASH, REST)]),
    st.lists(st.sampled_from([BEGIN, SLASH, A, A, B, NEWLINE, WHOLE]), max_size=14),
    st.lists(st.lists(st.sampled_from([SLASH, REST, A, B, WHOLE]), max_size=5), max_size=8),
)
def test_tokens_are_those_that_are_wanted_until_the_end_is_due(
    limit: int, begun: bool, end: tuple[int, ...], wanted: list[int], proposals: list[list[int]]
) -> None:
    wanted = [*([] if begun else [BEGIN]), *wanted]
    assert answer(request(limit, begun, end), wanted, proposals) == expected(limit, begun, end, wanted)


@pytest.mark.parametrize("end", [(WHOLE,), (SLASH, REST)])
def test_a_budget_is_exact(end: tuple[int, ...]) -> None:
    tokens = answer(request(3, True, end), [A] * 9, [])
    assert tokens == [A, A, A, *end, *[A] * (6 - len(end))]


def test_nothing_happens_where_the_answer_does_not_think() -> None:
    assert answer(request(0, False, (WHOLE,)), [A, BEGIN, A, A], []) == [A, BEGIN, A, A]


def test_a_thought_that_ends_by_itself_is_not_ended_again() -> None:
    assert answer(request(4, True, (WHOLE,)), [A, WHOLE, A, A, A, A], []) == [A, WHOLE, A, A, A, A]


def test_the_end_of_text_waits_for_min_tokens() -> None:
    tokens = answer(request(9, True, (WHOLE,), min_tokens=2), [END, END, END], [])
    assert END not in tokens[:2]
    assert tokens[2] == END


def test_the_end_is_forced_before_the_answer_may_end() -> None:
    assert answer(request(1, True, (WHOLE,)), [A, END, B], []) == [A, WHOLE, B]
