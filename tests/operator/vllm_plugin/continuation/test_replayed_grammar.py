"""A grammar advanced by the part of the answer that stands in the prompt."""

from types import SimpleNamespace
from typing import Any

import pytest

from paternoster_vllm.replayed_grammar import ANSWER_TOKENS, can_advance, wrap_grammars

END_OF_REASONING = 9


class Grammar:
    """Allows even tokens."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def accept_tokens(self, _: str, tokens: list[int]) -> bool:
        self.accepted += tokens
        return all(token % 2 == 0 for token in tokens)


class StubManager:
    """The steps of vLLM's ``StructuredOutputManager`` with a parser of reasoning, or without one."""

    def __init__(self, *, reasons: bool) -> None:
        self.reasons = reasons

    def _create_grammar(self, request: Any) -> Grammar:
        return Grammar()

    def _get_constraint_bounds(self, request: Any, tokens: Any) -> Any:
        state = request.structured_output_request
        if not self.reasons or state.reasoning_ended:
            return SimpleNamespace(constraint_start=0)
        if state.reasoning_ended is None:
            if END_OF_REASONING in request.prompt_token_ids:
                return SimpleNamespace(constraint_start=0)
            state.reasoning_ended = False
        ends = END_OF_REASONING in tokens
        return SimpleNamespace(constraint_start=1 if ends or not tokens else len(tokens) + 1)

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        assert request.all_token_ids[-len(tokens) :] == tokens
        start = self._get_constraint_bounds(request, tokens).constraint_start
        if start > len(tokens):
            return True
        request.structured_output_request.reasoning_ended = True
        accepted: bool = request.structured_output_request.grammar.accept_tokens("", tokens[start:])
        return accepted


def compile_grammar(
    prompt: list[int], count: Any, *, reasons: bool = False, ended: bool | None = None
) -> tuple[list[int], Any]:
    """The tokens that the grammar got, and whether the core holds the reasoning for ended."""

    class Manager(StubManager):
        pass

    assert can_advance(Manager)
    wrap_grammars(Manager)
    wrap_grammars(Manager)
    state = SimpleNamespace(grammar=None, reasoner=None, reasoning_ended=ended, reasoning_parser_kwargs=None)
    params = SimpleNamespace(extra_args={ANSWER_TOKENS: count})
    request = SimpleNamespace(
        request_id="a", prompt_token_ids=prompt, sampling_params=params, structured_output_request=state
    )
    return Manager(reasons=reasons)._create_grammar(request).accepted, state.reasoning_ended


def test_a_grammar_gets_the_answer_and_not_the_prompt() -> None:
    assert compile_grammar([1, 3, 2, 4], 2) == ([2, 4], True)


def test_with_a_parser_it_gets_what_follows_the_reasoning() -> None:
    assert compile_grammar([1, 3, 5, 9, 2], 3, reasons=True) == ([2], True)


def test_reasoning_that_goes_on_is_not_taken_for_ended() -> None:
    """The prompt of the engine that goes on has the reasoning so far."""
    assert compile_grammar([1, 3, 5], 1, reasons=True) == ([], False)


@pytest.mark.parametrize(("prompt", "ended"), [([1, 9, 2, 4], None), ([1, 2, 4], True)])
def test_reasoning_that_ended_before_the_answer(prompt: list[int], ended: bool | None) -> None:
    assert compile_grammar(prompt, 2, reasons=True, ended=ended) == ([2, 4], True)


def test_tokens_that_the_grammar_does_not_allow_fail_the_request() -> None:
    with pytest.raises(ValueError, match="the token 3"):
        compile_grammar([1, 2, 3], 2)


@pytest.mark.parametrize("count", [0, -1, True, "2", 4, 100, None])
def test_a_number_that_no_plugin_sent_changes_nothing(count: Any) -> None:
    assert compile_grammar([1, 2, 3, 5], count) == ([], None)


def test_a_vllm_with_another_manager_is_left_alone() -> None:
    assert not can_advance(type("Manager", (), {"_create_grammar": None}))
