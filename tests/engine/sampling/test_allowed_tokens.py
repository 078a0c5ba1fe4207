"""Tokens that a request allows alone, and words that it forbids."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.allowed_tokens import mask_of, words_as_tokens
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.sampler import Sampler

VOCAB, END = 40, 2
CPU = torch.device("cpu")


def request(output: Sequence[int] = (), allowed: Sequence[int] = range(VOCAB), **params: Any) -> Request:
    settled = SamplingParams(**{"max_tokens": 50, "temperature": 0.0, **params}, allowed_tokens=mask_of(allowed, VOCAB))
    return Request(RequestSpec("r", [1], settled, eos_token_ids=(END,), seed=3), output=list(output))


def sampled(rows: Sequence[Any], logits: torch.Tensor | None = None) -> list[int]:
    """Sample with both samplers, which must agree."""
    if logits is None:
        logits = torch.arange(VOCAB, dtype=torch.float32).repeat(len(rows), 1)
    tokens = Sampler(VOCAB, CPU).sample(logits, rows)
    assert DeviceSampler(CPU).sample(logits, rows) == tokens
    return tokens


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, VOCAB - 1), min_size=1),
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple), max_size=6).map(tuple),
    st.lists(st.integers(0, 5), max_size=6),
    st.sampled_from([0.0, 1.0]),
)
def test_the_likeliest_of_what_is_left(
    allowed: set[int], words: tuple[tuple[int, ...], ...], output: list[int], temperature: float
) -> None:
    """A word's last token is forbidden just where the answer ends with the others."""
    forbidden = {word[-1] for word in words if word[:-1] == tuple(output[len(output) - len(word) + 1 :])}
    row = request(output, sorted(allowed), bad_words=words, temperature=temperature)
    (token,) = sampled([row])
    left = allowed - forbidden
    assert row.is_unsatisfiable == (not left)
    if left:
        assert token in left
        assert temperature > 0 or token == max(left)


def test_rows_beside_it_may_have_any_token() -> None:
    free = Request(RequestSpec("f", [1], SamplingParams(max_tokens=5, temperature=0.0)))
    assert sampled([free, request(allowed=[3, 4]), free]) == [VOCAB - 1, 4, VOCAB - 1]


def test_no_end_before_min_tokens_unless_nothing_else_is_left() -> None:
    assert sampled([request(allowed=[END, 1], min_tokens=2)]) == [1]
    assert sampled([request([1, 1], allowed=[END, 1], min_tokens=2)]) == [END]
    assert sampled([request(allowed=[END], min_tokens=2)]) == [END]


def test_a_proposed_word_is_forbidden_behind_its_beginning() -> None:
    base = request([7], bad_words=((8, 39), (9,)), allowed=[8, 9, 38, 39])
    assert sampled([base, ProposedRow(base, [8]), ProposedRow(base, [8, 38])]) == [39, 38, 39]


def test_a_row_that_nothing_is_left_for_is_no_fault_while_it_is_proposed() -> None:
    base = request(allowed=[8], bad_words=((8, 8),))
    row = ProposedRow(base, [8])
    sampled([base, row])
    assert (base.is_unsatisfiable, row.is_unsatisfiable) == (False, True)


@pytest.mark.parametrize(
    ("words", "tokens"),
    [(["a"], ((1,), (10,))), ([" a"], ((1,), (10,))), (["ab"], ((1, 2), (10, 2))), (["c"], ((3,),))],
)
def test_words_stand_at_the_beginning_and_behind_a_space(words: list[str], tokens: tuple[tuple[int, ...], ...]) -> None:
    """Behind a space only where that gives another first token, and as many; as vLLM."""
    ids = {"a": [1], " a": [10], "ab": [1, 2], " ab": [10, 2], "c": [3], " c": [0, 3]}
    assert words_as_tokens(words, ids.__getitem__) == tokens
