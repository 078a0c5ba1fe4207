"""In vLLM's engine core: the grammar of a request whose prompt ends with a part of its answer, advanced by it."""

from types import SimpleNamespace
from typing import Any

ANSWER_TOKENS = "paternoster_answer_tokens"
"""Key in ``SamplingParams.extra_args``: how many tokens at the end of the prompt are of the answer."""
_WRAPPED = "_paternoster_wrapped"


def can_advance(manager_class: Any) -> bool:
    """Whether vLLM's ``StructuredOutputManager`` is as this module needs it."""
    return all(hasattr(manager_class, name) for name in ("_create_grammar", "accept_tokens", "_get_constraint_bounds"))


def wrap_grammars(manager_class: Any) -> None:
    """Advance each grammar that is compiled for such a request; may be called again."""
    create = manager_class._create_grammar
    if getattr(create, _WRAPPED, False):
        return

    def create_grammar(manager: Any, request: Any) -> Any:
        grammar = create(manager, request)
        advance_grammar(manager, request, grammar)
        return grammar

    setattr(create_grammar, _WRAPPED, True)
    manager_class._create_grammar = create_grammar


def advance_grammar(manager: Any, request: Any, grammar: Any) -> None:
    """Raises ``ValueError`` for tokens that ``grammar`` does not allow.

    vLLM decides from which token on the grammar holds: from the end of the reasoning, where it has a parser of it.
    """
    tokens = _find_answer(request)
    if not tokens:
        return
    structured = request.structured_output_request
    prompt = request.prompt_token_ids[: -len(tokens)]
    state = SimpleNamespace(
        grammar=grammar, reasoner=structured.reasoner, reasoning_ended=structured.reasoning_ended,
        reasoning_parser_kwargs=structured.reasoning_parser_kwargs,
    )  # fmt: skip
    so_far = SimpleNamespace(
        request_id=request.request_id, use_structured_output=True, structured_output_request=state,
        prompt_token_ids=prompt, all_token_ids=list(prompt),
    )  # fmt: skip
    if manager._get_constraint_bounds(so_far, ()).constraint_start == 0:
        state.reasoning_ended = True
    for token in tokens:
        so_far.all_token_ids.append(token)
        if not manager.accept_tokens(so_far, [token]):
            raise ValueError(f"the answer so far has the token {token}, which its grammar does not allow")
    structured.reasoner, structured.reasoning_ended = state.reasoner, state.reasoning_ended


def _find_answer(request: Any) -> list[int]:
    count = (getattr(request.sampling_params, "extra_args", None) or {}).get(ANSWER_TOKENS, 0)
    prompt = request.prompt_token_ids or []
    return list(prompt[-count:]) if type(count) is int and 0 < count < len(prompt) else []
