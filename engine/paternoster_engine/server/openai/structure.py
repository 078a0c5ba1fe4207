"""What the answers of a call must match: a grammar of the client's, calls of tools, or both."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar, cast

from paternoster_engine.core.matching import Matcher
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.free_text import FreeText, Thought
from paternoster_engine.sampling.grammars.lazy import LazyMatcher
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.thinking_budget import ThinkingBudget
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.enforcement import (
    FieldKeyword,
    check_strict,
    enforce_calls,
    find_in_answer,
    find_in_calls,
    report_unenforced,
    tool_field,
)
from paternoster_engine.server.openai.fields.structured import Structured
from paternoster_engine.server.openai.requests import ChatCompletionRequest, GenerationRequest
from paternoster_engine.server.parsers.call_form import ArgumentsError, Outline, RequiredCalls
from paternoster_engine.server.state import ServedModel

_Calls = TypeVar("_Calls", bound=RequiredCalls | None)
NewMatcher = Callable[[], Matcher]
"""Makes that of one sequence."""
NO_LIMIT = -1
"""Of ``thinking_token_budget``, as in vLLM."""


async def matchers_of_text(
    served: ServedModel, body: GenerationRequest, prompts: Sequence[Sequence[int]], tenant: str
) -> list[NewMatcher | None]:
    """Of a text completion, for each of its prompts.

    Raises :class:`InvalidValue`, and what :meth:`GrammarWork.compile` raises besides.
    """
    structured, field = body.find_structure(), "thinking_token_budget"
    matcher = await _compile_structured(served, body, structured, _CallOutline(), tenant)
    if body.thinking_token_budget in (None, NO_LIMIT) or (thought := served.answers.format.find_thought("")) is None:
        return [matcher] * len(prompts)
    if structured is not None:
        other = structured.field
        fault = f"not allowed together with {other}: the whole answer is held to that, and has no thought"
        raise InvalidValue(field, f"{field}: {fault}", other=other)
    begun = await asyncio.to_thread(lambda: [_begun_thought(served, thought, prompt) for prompt in prompts])
    return [_with_thinking_budget(served, body, each, spent, None) for each, spent in begun]


def _begun_thought(served: ServedModel, thought: Thought, prompt: Sequence[int]) -> tuple[Thought, int]:
    """The thought in which a raw prompt ends, or with which its answer may begin, and its tokens in the prompt."""
    spelled = [served.answers.seen_tokens.spelled(token) for token in prompt]
    text, begin = b"".join(spelled), thought.begin.encode()
    before, marker, inside = text.rpartition(begin)
    if not marker or thought.end.encode() in inside:
        return replace(thought, begun=False), 0
    if not inside.strip():
        # As of a chat, whose template may write a line's end behind the mark.
        return replace(thought, begun=True), 0
    starts = list(accumulate(map(len, spelled), initial=0))[:-1]
    return replace(thought, begun=True), len(prompt) - bisect_left(starts, len(before) + len(marker))


async def matcher_of_chat(
    served: ServedModel, body: ChatCompletionRequest, ending: str, tenant: str
) -> NewMatcher | None:
    """Of a chat whose prompt ends with ``ending``; raises as :func:`matchers_of_text`, and for a budget with beams.

    The structure comes after the thinking. Calls may come in place of JSON, unless the body allows none; where they
    must, nothing is left to be JSON. A model that does not think keeps within every thinking budget.
    """
    matcher = await _structure_of_chat(served, body, ending, tenant)
    if body.thinking_token_budget in (None, NO_LIMIT):
        return matcher
    thought = served.answers.format.find_thought(ending)
    return matcher if thought is None else _with_thinking_budget(served, body, thought, 0, matcher)


async def _structure_of_chat(
    served: ServedModel, body: ChatCompletionRequest, ending: str, tenant: str
) -> NewMatcher | None:
    """Of the answer without its thinking budget."""
    structured, form = body.find_structure(), served.answers.format
    required, possible = body.required_calls, body.possible_calls
    if required is not None:
        if structured is not None and structured.source.kind != "json":
            other = structured.field
            raise InvalidValue("tool_choice", f"tool_choice: not allowed together with {other}", other=other)
        made = await _make_outline(served, body, "tool_choice", form.outline_required_calls, required, ending)
        return await _matcher_of_calls(served, body, "tool_choice", made, tenant)
    if structured is not None:
        either = possible if structured.source.kind == "json" else None
        made = await _make_outline(served, body, "tools", form.of_answer, either, ending)
        if made.outline is not None:
            structured = structured._replace(source=structured.source._replace(outline=made.outline.lark))
        return await _compile_structured(served, body, structured, made, tenant)
    if possible is not None and body.strict:
        made = await _make_outline(served, body, "tools", form.outline_optional_calls, possible, ending)
        return None if made.outline is None else await _matcher_of_calls(served, body, "tools", made, tenant)
    return None


class _CallOutline(NamedTuple):
    """An outline, and keywords of the schemas of its calls that it does not enforce."""

    outline: Outline | None = None
    unenforced: Sequence[FieldKeyword] = ()


def _with_thinking_budget(
    served: ServedModel, body: GenerationRequest, thought: Thought, spent: int, matcher: NewMatcher | None
) -> NewMatcher:
    """``spent``: tokens of the thought before the answer."""
    if body.use_beam_search:
        raise InvalidValue("thinking_token_budget", "thinking_token_budget: not allowed with use_beam_search=true")
    left = max(0, (body.thinking_token_budget or 0) - spent)
    end, seen = served.answers.tokenizer.encode(thought.end), served.answers.seen_tokens
    return lambda: ThinkingBudget(left, thought, end, seen, None if matcher is None else matcher())


async def _make_outline(
    served: ServedModel,
    body: ChatCompletionRequest,
    field: str,
    make: Callable[[_Calls, str], Outline | None],
    calls: _Calls,
    ending: str,
) -> _CallOutline:
    form = served.answers.format.form

    def build_structure() -> _CallOutline:
        if calls is None or form is None:
            return _CallOutline(make(calls, ending))
        enforced, rest = enforce_calls(body, calls, form.arguments)
        return _CallOutline(make(cast(_Calls, enforced), ending), rest)

    try:
        # Schemas may be large: a thread lets other clients go on.
        made = await asyncio.to_thread(build_structure)
    except RecursionError:
        raise _not_enforced(body, field, GrammarError("it is nested too deeply")) from None
    except GrammarError as error:
        raise _not_enforced(body, field, error) from error
    check_strict(made.unenforced)
    return made


def _not_enforced(body: GenerationRequest, field: str, error: Exception) -> InvalidValue:
    if isinstance(error, ArgumentsError) and isinstance(body, ChatCompletionRequest):
        field = tool_field(body, error.tool)
    return InvalidValue(field, f"{field}: cannot be enforced: {error}")


async def _matcher_of_calls(
    served: ServedModel, body: ChatCompletionRequest, field: str, made: _CallOutline, tenant: str
) -> NewMatcher | None:
    if made.outline is None:
        raise InvalidValue(
            field,
            f"{field}: that a tool must be called is not supported for this model: no grammar describes its calls; "
            'send "auto" or "none"',
        )
    source = GrammarSource("lark", made.outline.lark)
    return await _compile_structured(served, body, Structured(field, source), made, tenant)


async def _compile_structured(
    served: ServedModel, body: GenerationRequest, structured: Structured | None, made: _CallOutline, tenant: str
) -> NewMatcher | None:
    if structured is None:
        return None
    field, outline = structured.field, made.outline
    if body.use_beam_search:
        raise InvalidValue(field, f"{field}: not allowed with use_beam_search=true: leave one of the two out")
    try:
        grammar = await served.answers.grammars.compile(structured.source, tenant)
    except GrammarError as error:
        fault = error if outline is None else outline.describe_fault(error)
        raise _not_enforced(body, field, fault) from error
    unenforced = [*made.unenforced, *find_in_answer(field, grammar.unenforced, strict=structured.strict)]
    if outline is not None and isinstance(body, ChatCompletionRequest):
        unenforced += find_in_calls(body, outline, grammar.unenforced)
    report_unenforced(unenforced)
    free = FreeText() if outline is None else outline.free
    if free.thought is None and free.call is None:
        return grammar.begin_output
    seen = served.answers.seen_tokens
    if free.thought is not None:
        # Not in the engine's thread, and not in this one.
        await asyncio.to_thread(seen.find_beyond, free.thought.end.encode())
    return partial(LazyMatcher, grammar, free, seen)
