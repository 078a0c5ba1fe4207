"""Formats of calls and reasoning: a model's is the one whose marks its chat template has, or that a setting names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_engine.sampling.grammars.free_text import FreeText, Thought
from paternoster_engine.server.parsers import think
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.parsers.call_form import (
    CallForm,
    MarkedThought,
    Outline,
    RequiredCalls,
    lark_of_begun,
    write_lark,
)
from paternoster_engine.server.parsers.calls import glm45, harmony, hermes, llama3_json, mistral, pythonic, qwen3_coder
from paternoster_engine.server.parsers.events import CallBegin, Content, Read, Reasoning
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.text_around_calls import only_calls, strip_spaces
from paternoster_engine.server.parsers.think import Marks


def _call_id(digits: str) -> str:
    return f"call_{digits[:24]}"


def _same_id(call_id: str) -> str:
    return call_id


Tools = Mapping[str, Mapping[str, Any]]
"""Names of functions -> JSON schemas of their arguments."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How calls are written."""

    read: Callable[[Reader, Tools], Read[None]]
    """Reads an answer to its end, with calls of those tools."""
    markers: tuple[str, ...]
    """What may be control tokens in a vocabulary."""
    call_id: Callable[[str], str] = _call_id
    """The id of a call with 32 hexadecimal digits of its own."""
    id_for_template: Callable[[str], str] = _same_id
    form: Callable[[str], CallForm] | None = None
    """How calls are written by the model of a template; None where no grammar says it."""
    begins: tuple[str, ...] = ()
    """Marks that begin a call and nothing else."""


TOOL_FORMATS: Mapping[str, CallFormat] = {
    "hermes": CallFormat(
        hermes.read_answer, (hermes.BEGIN, hermes.END), form=lambda _: hermes.FORM, begins=(hermes.BEGIN,)
    ),
    "llama3_json": CallFormat(
        llama3_json.read_answer, (llama3_json.BEGIN,), form=lambda _: llama3_json.FORM, begins=(llama3_json.BEGIN,)
    ),
    "mistral": CallFormat(
        mistral.read_answer,
        (mistral.BEGIN, mistral.ARGS, mistral.CALL_ID),
        call_id=mistral.call_id,
        id_for_template=mistral.id_for_template,
        form=mistral.find_form,
        begins=(mistral.BEGIN,),
    ),
    "qwen3_coder": CallFormat(
        qwen3_coder.read_answer,
        (qwen3_coder.BEGIN, qwen3_coder.END),
        form=lambda _: qwen3_coder.FORM,
        begins=(qwen3_coder.BEGIN, qwen3_coder.FUNCTION),
    ),
    "glm45": CallFormat(glm45.read_answer, glm45.MARKERS, form=lambda _: glm45.FORM, begins=(glm45.BEGIN,)),
    "pythonic": CallFormat(
        pythonic.read_answer, (pythonic.BEGIN, pythonic.END), form=lambda _: pythonic.FORM, begins=(pythonic.BEGIN,)
    ),
    "harmony": CallFormat(harmony.read_answer, harmony.MARKERS, form=lambda _: harmony.FORM),
}
REASONING_FORMATS: Mapping[str, Marks] = {"think": think.THINK, "mistral": think.MISTRAL}
"""``harmony`` besides, whose channels have calls and reasoning alike."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What the answers of one model consist of."""

    tools: CallFormat | None = None
    """None: calls are text of the answer."""
    reasoning: Marks | None = None
    channels: bool = False
    """Whether all of it is in harmony's channels."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Marks that are control tokens of the vocabulary -> their ids."""
    form: CallForm | None = None
    """How calls are written; None where no grammar says it."""

    @classmethod
    def find_format(
        cls,
        template: str | None,
        special_token_id: Callable[[str], int | None],
        tool_parser: str = "auto",
        reasoning_parser: str = "auto",
    ) -> "AnswerFormat":
        """``special_token_id``: of a control token's text. The parsers are names of formats, ``auto`` or ``none``."""
        tool_name = _tool_format(template or "") if tool_parser == "auto" else tool_parser
        reasoning_name = _reasoning_format(template or "") if reasoning_parser == "auto" else reasoning_parser
        tools, reasoning = TOOL_FORMATS.get(tool_name), REASONING_FORMATS.get(reasoning_name)
        channels = "harmony" in (tool_name, reasoning_name)
        markers = {*(tools.markers if tools else ()), *(reasoning or ()), *(harmony.MARKERS if channels else ())}
        ids = {marker: token for marker in markers if (token := special_token_id(marker)) is not None}
        form = None if tools is None or tools.form is None else tools.form(template or "")
        return cls(tools, reasoning, channels, ids, form)

    @property
    def reasons(self) -> bool:
        """Whether answers may have reasoning."""
        return self.reasoning is not None or self.channels

    def call_id(self, digits: str) -> str:
        """The id of a call with the hexadecimal ``digits``, 32 of its own."""
        return _call_id(digits) if self.tools is None else self.tools.call_id(digits)

    def id_for_template(self, call_id: str) -> str:
        """The id of a call as the model's template takes it."""
        return call_id if self.tools is None else self.tools.id_for_template(call_id)

    def build_parser(
        self, tools: Tools | None = None, prompt: str = "", required: RequiredCalls | None = None
    ) -> AnswerParser:
        """Make a parser of one answer.

        ``tools``: those that may be called. ``prompt``: at least its end, in which reasoning may have begun.
        ``required``: calls to which the grammar restricts the answer.
        """

        def read_answer(reader: Reader) -> Read[None]:
            if self.channels:
                yield from harmony.read_answer(reader, tools or {} if self.tools is not None else ())
                yield from reader.pass_rest(Content)
            else:
                yield from self._read_calls(reader, tools or {})

        def read(reader: Reader) -> Read[None]:
            if self.reasoning is not None:
                begun = self.reasoning.has_begun(prompt)
                begins = () if self.tools is None or not tools else self.tools.begins
                if (yield from think.read_reasoning(reader, self.reasoning, begun, begins)):
                    yield from self._read_calls_of_thought(reader, tools or {})
            events = read_answer(reader)
            if tools and self.tools is not None:
                events = strip_spaces(events)
            if required is not None:
                events = only_calls(events, reader, [name for name, _ in required.tools])
            yield from events

        return AnswerParser(read, frozenset(self.special.values()))

    def _read_calls_of_thought(self, reader: Reader, tools: Tools) -> Read[None]:
        """Read the rest of an answer that ended within its thought: calls, or else more of the thought."""
        assert self.tools is not None
        rest = Reader()
        rest.held, rest.ended = reader.reject(len(reader.held)), True
        text = rest.held
        events = [event for event in strip_spaces(self._read_calls(rest, tools)) if event is not None]
        if not any(isinstance(event, CallBegin) for event in events):
            yield Reasoning(text.rstrip())
            return
        for event in events:
            yield Reasoning(event.text) if isinstance(event, Content) else event

    def _read_calls(self, reader: Reader, tools: Tools) -> Read[None]:
        if self.tools is not None and tools:
            yield from self.tools.read(reader, tools)
        yield from reader.pass_rest(Content)

    def outline_required_calls(self, calls: RequiredCalls, prompt: str) -> Outline | None:
        """Outline of answers that have calls; None where no grammar describes them. ``prompt`` as above."""
        return None if self.form is None else self._answer_outline(prompt, calls)

    def of_answer(self, calls: RequiredCalls | None, prompt: str) -> Outline | None:
        """Outline of answers that are ``@answer``, or have ``calls`` in its place; None where there is nothing else.

        Calls that begin as JSON may are left out: what has begun could be an answer as well.
        """
        if self.form is None or self.form.begins_as_json(self.special):
            calls = None
        if calls is None and self.find_thought(prompt) is None:
            return None
        return self._answer_outline(prompt, calls, harmony.ANSWER if self.channels else "")

    def outline_optional_calls(self, calls: RequiredCalls, prompt: str) -> Outline | None:
        """Outline of answers that may have calls anywhere; None where no grammar describes how they are written."""
        if self.form is None or self.form.begun is None:
            return None
        begun = self.form.begun
        names = [name for name, _ in calls.tools]
        free = FreeText(
            # In channels a call is known by its header alone.
            None if self.channels else self.find_thought(prompt),
            begun.by.replace("%s", "|".join(map(re.escape, names))),
            begun.several,
            self.special,
        )
        return Outline(lark_of_begun(begun, self.form.arguments, calls, self.special), free, names)

    def _answer_outline(self, prompt: str, calls: RequiredCalls | None, answer: str | None = None) -> Outline:
        thought = self.find_thought(prompt)
        marked = None
        if self.channels:
            marked = harmony.THOUGHT
        elif thought is not None:
            marked = MarkedThought("" if thought.begun else thought.begin, " ")
        grammar = write_lark(self.form, calls, marked, self.special, answer)
        names = [] if calls is None else [name for name, _ in calls.tools]
        return Outline(grammar, FreeText(thought, special=self.special), names)

    def find_thought(self, prompt: str) -> Thought | None:
        """The thought with which an answer to ``prompt``, or to a prompt with that end, may begin; None for none."""
        if self.channels:
            return Thought(harmony.THOUGHT.begin, harmony.THOUGHT_END, begun=False)
        if self.reasoning is None or self.reasoning.has_ended(prompt):
            return None
        return Thought(*self.reasoning, begun=self.reasoning.has_begun(prompt))


def _tool_format(template: str) -> str:
    """Formats that share marks with others come after those; what is none of ours has marks of its own, too."""
    if "<|channel|>" in template:
        return "harmony"
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<tool_call>" in template:
        if "<function=" in template:
            return "qwen3_coder"
        return "glm45" if "<arg_key>" in template else "hermes"
    if "<|python_start|>" in template or "func_name1(params_name1" in template:
        return "pythonic"
    if "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return "llama3_json"
    return "none"


def _reasoning_format(template: str) -> str:
    if "<|channel|>" in template:
        return "harmony"
    return next((name for name, marks in REASONING_FORMATS.items() if marks.end in template), "none")
