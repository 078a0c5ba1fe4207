"""The constraint of a call's answers: a grammar of the client's, calls of tools, or both.

Keywords of schemas that cannot be enforced are refused with ``strict``, else reported as ignored.
"""

import asyncio
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar, cast

from paternoster_engine.core.matching import Matcher
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.free_text import FreeText, Thought
from paternoster_engine.sampling.grammars.lazy import LazyMatcher
from paternoster_engine.sampling.grammars.limits import MAX_BYTES
from paternoster_engine.sampling.grammars.schemas.rewriting import Unenforced
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.thinking_budget import ThinkingBudget
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.openai.fields.body import MAX_NAME, report_ignored
from paternoster_engine.server.openai.fields.structured import Structured
from paternoster_engine.server.openai.requests import ChatCompletionRequest, GenerationRequest
from paternoster_engine.server.parsers.arguments.enforced import enforce_arguments
from paternoster_engine.server.parsers.arguments.json_object import Arguments
from paternoster_engine.server.parsers.call_form import ARGUMENTS, ArgumentsError, Outline, RequiredCalls

_Calls = TypeVar("_Calls", bound=RequiredCalls | None)
NewMatcher = Callable[[], Matcher]
"""Makes that of one sequence."""
NO_LIMIT = -1
"""Value of ``thinking_token_budget`` without a limit, as in vLLM."""
MAX_PATH = 256
"""Characters of one keyword's path in a header: of a longer one the end is named."""


class FieldKeyword(NamedTuple):
    """A keyword, which cannot be enforced, of the schema in a field of the body."""

    field: str
    keyword: Unenforced
    strict: bool

    def check_strict(self) -> None:
        """Raises :class:`InvalidValue` for an assertion in a schema with ``strict``."""
        if self.strict and self.keyword.asserts:
            path = ".".join((*self.keyword.path, self.keyword.keyword))
            raise InvalidValue(
                self.field,
                f"{self.field}: cannot be enforced: {path:.300} is not supported, and strict is true: leave the "
                "keyword out, or send strict=false and check answers for it",
            )

    @property
    def header_name(self) -> str:
        names = (*self.keyword.path, self.keyword.keyword)
        path = ".".join(re.sub(r"[^A-Za-z0-9$_-]", "_", part[:MAX_NAME]) for part in names)
        return f"{self.field}.{path if len(path) <= MAX_PATH else f'...{path[-MAX_PATH:]}'}"


class _CallOutline(NamedTuple):
    """An outline, and keywords of the schemas of its calls that it does not enforce."""

    outline: Outline | None = None
    unenforced: Sequence[FieldKeyword] = ()


class AnswerConstraint:
    """The constraint of the answers to one body."""

    def __init__(self, decoder: AnswerDecoder, body: GenerationRequest, tenant: str) -> None:
        """``tenant``: in whose turn grammars are compiled."""
        self._decoder = decoder
        self._body = body
        self._tools = body.tools if isinstance(body, ChatCompletionRequest) else []
        self._tenant = tenant

    async def match_texts(self, prompts: Sequence[Sequence[int]]) -> list[NewMatcher | None]:
        """Compile the constraint of a text completion, for each of its prompts.

        Raises :class:`InvalidValue`, and what :meth:`GrammarWork.compile` raises besides.
        """
        structured, field = self._body.find_structure(), "thinking_token_budget"
        matcher = await self._compile_structured(structured, _CallOutline())
        if not self._limits_thought or (thought := self._decoder.format.find_thought("")) is None:
            return [matcher] * len(prompts)
        if structured is not None:
            other = structured.field
            fault = f"not allowed together with {other}: the whole answer is held to that, and has no thought"
            raise InvalidValue(field, f"{field}: {fault}", other=other)
        begun = await asyncio.to_thread(lambda: [self._begun_thought(thought, prompt) for prompt in prompts])
        return [self._with_thinking_budget(each, spent, None) for each, spent in begun]

    async def match_chat(self, ending: str) -> NewMatcher | None:
        """Compile the constraint of a chat whose prompt ends with ``ending``.

        The structure comes after the thinking. Calls may come in place of JSON, unless the body allows none; where they
        must, nothing is left to be JSON. A model that does not think keeps within every thinking budget. Raises as
        :meth:`match_texts`, and for a budget with beams.
        """
        matcher = await self._match_structure(ending)
        if not self._limits_thought:
            return matcher
        thought = self._decoder.format.find_thought(ending)
        return matcher if thought is None else self._with_thinking_budget(thought, 0, matcher)

    @property
    def _limits_thought(self) -> bool:
        return self._body.thinking_token_budget not in (None, NO_LIMIT)

    def _begun_thought(self, thought: Thought, prompt: Sequence[int]) -> tuple[Thought, int]:
        """The thought in which a raw prompt ends, or with which its answer may begin, and its tokens in the prompt."""
        spelled = [self._decoder.seen_tokens.spelled(token) for token in prompt]
        text, begin = b"".join(spelled), thought.begin.encode()
        before, marker, inside = text.rpartition(begin)
        if not marker or thought.end.encode() in inside:
            return replace(thought, begun=False), 0
        if not inside.strip():
            # As of a chat, whose template may write a line's end behind the mark.
            return replace(thought, begun=True), 0
        starts = list(accumulate(map(len, spelled), initial=0))[:-1]
        return replace(thought, begun=True), len(prompt) - bisect_left(starts, len(before) + len(marker))

    def _with_thinking_budget(self, thought: Thought, spent: int, matcher: NewMatcher | None) -> NewMatcher:
        """``spent``: tokens of the thought before the answer."""
        if self._body.use_beam_search:
            raise InvalidValue("thinking_token_budget", "thinking_token_budget: not allowed with use_beam_search=true")
        left = max(0, (self._body.thinking_token_budget or 0) - spent)
        end, seen = self._decoder.tokenizer.encode(thought.end), self._decoder.seen_tokens
        return lambda: ThinkingBudget(left, thought, end, seen, None if matcher is None else matcher())

    async def _match_structure(self, ending: str) -> NewMatcher | None:
        """Compile the constraint of a chat without its thinking budget."""
        body, form = self._body, self._decoder.format
        assert isinstance(body, ChatCompletionRequest), "only chats have tools"
        structured, required, possible = body.find_structure(), body.required_calls, body.possible_calls
        if required is not None:
            if structured is not None and structured.source.kind != "json":
                other = structured.field
                raise InvalidValue("tool_choice", f"tool_choice: not allowed together with {other}", other=other)
            made = await self._make_outline("tool_choice", form.outline_required_calls, required, ending)
            return await self._match_calls("tool_choice", made)
        if structured is not None:
            either = possible if structured.source.kind == "json" else None
            made = await self._make_outline("tools", form.of_answer, either, ending)
            if made.outline is not None:
                structured = structured._replace(source=structured.source._replace(outline=made.outline.lark))
            return await self._compile_structured(structured, made)
        if possible is not None and body.strict:
            made = await self._make_outline("tools", form.outline_optional_calls, possible, ending)
            return None if made.outline is None else await self._match_calls("tools", made)
        return None

    async def _make_outline(
        self, field: str, make: Callable[[_Calls, str], Outline | None], calls: _Calls, ending: str
    ) -> _CallOutline:
        form = self._decoder.format.form

        def build_structure() -> _CallOutline:
            if calls is None or form is None:
                return _CallOutline(make(calls, ending))
            enforced, rest = self._enforce_calls(calls, form.arguments)
            return _CallOutline(make(cast(_Calls, enforced), ending), rest)

        try:
            # Schemas may be large: a thread lets other clients go on.
            made = await asyncio.to_thread(build_structure)
        except RecursionError:
            raise self._not_enforced(field, GrammarError("it is nested too deeply")) from None
        except GrammarError as error:
            raise self._not_enforced(field, error) from error
        for found in made.unenforced:
            found.check_strict()
        return made

    def _enforce_calls(self, calls: RequiredCalls, arguments: Arguments) -> tuple[RequiredCalls, list[FieldKeyword]]:
        """``calls`` whose schemas have what can be enforced where calls have ``arguments``, and the rest.

        Raises :class:`ArgumentsError`.
        """
        tools, rest, size = [], [], 0
        for name, schema in calls.tools:
            try:
                made = enforce_arguments(arguments, schema)
            except GrammarError as error:
                raise ArgumentsError(name, str(error)) from error
            size += len(json.dumps(made.schema))
            if size > MAX_BYTES:
                # The compiler would refuse it: the other schemas need not be read.
                raise ArgumentsError(name, f"the grammar of all tools has more than {MAX_BYTES} bytes")
            tools.append((name, made.schema))
            rest += [self._in_tool(name, keyword) for keyword in made.unenforced]
        return calls._replace(tools=tools), rest

    async def _match_calls(self, field: str, made: _CallOutline) -> NewMatcher | None:
        if made.outline is None:
            raise InvalidValue(
                field,
                f"{field}: that a tool must be called is not supported for this model: no grammar describes its calls; "
                'send "auto" or "none"',
            )
        return await self._compile_structured(Structured(field, GrammarSource("lark", made.outline.lark)), made)

    async def _compile_structured(self, structured: Structured | None, made: _CallOutline) -> NewMatcher | None:
        if structured is None:
            return None
        field, outline = structured.field, made.outline
        if self._body.use_beam_search:
            raise InvalidValue(field, f"{field}: not allowed with use_beam_search=true: leave one of the two out")
        try:
            grammar = await self._decoder.grammars.compile(structured.source, self._tenant)
        except GrammarError as error:
            fault = error if outline is None else outline.describe_fault(error)
            raise self._not_enforced(field, fault) from error
        unenforced = [*made.unenforced, *self._locate_keywords(structured, outline, grammar.unenforced)]
        for found in unenforced:
            found.check_strict()
        report_ignored(*(found.header_name for found in unenforced))
        free = FreeText() if outline is None else outline.free
        if free.thought is None and free.call is None:
            return grammar.begin_output
        seen = self._decoder.seen_tokens
        if free.thought is not None:
            # Not in the engine's thread, and not in this one.
            await asyncio.to_thread(seen.find_beyond, free.thought.end.encode())
        return partial(LazyMatcher, grammar, free, seen)

    def _locate_keywords(
        self, structured: Structured, outline: Outline | None, keywords: Iterable[Unenforced]
    ) -> Iterator[FieldKeyword]:
        """Each of the ``keywords`` that a compiled grammar does not enforce, with the field that has it.

        The schema of the answer's content first, then those of the tools of ``outline``.
        """
        of_tools = []
        for keyword in keywords:
            rule = re.match(rf"{ARGUMENTS}_(\d+)", keyword.path[0]) if keyword.path else None
            if rule is None:
                yield FieldKeyword(structured.field, keyword, structured.strict)
            elif outline is not None:
                name = outline.tools[int(rule[1])]
                of_tools.append(self._in_tool(name, keyword._replace(path=keyword.path[1:])))
        yield from of_tools

    def _in_tool(self, name: str, keyword: Unenforced) -> FieldKeyword:
        strict = any(tool.function.strict for tool in self._tools if tool.function.name == name)
        return FieldKeyword(self._tool_field(name), keyword, strict)

    def _tool_field(self, name: str) -> str:
        """Place of the schema of the arguments of the tool ``name``."""
        index = [tool.function.name for tool in self._tools].index(name)
        return f"tools.{index}.function.parameters"

    def _not_enforced(self, field: str, error: Exception) -> InvalidValue:
        if isinstance(error, ArgumentsError) and self._tools:
            field = self._tool_field(error.tool)
        return InvalidValue(field, f"{field}: cannot be enforced: {error}")
