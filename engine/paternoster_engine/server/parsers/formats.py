"""Which format a model writes calls and reasoning in: what its chat template has marks of, or what a setting says."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from paternoster_engine.server.parsers import harmony, hermes, llama3_json, mistral, pythonic, think
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.parsers.call_form import CallForm, RequiredCalls, Thought, lark
from paternoster_engine.server.parsers.events import Content, Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.think import Marks


def _new_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def _same_id(call_id: str) -> str:
    return call_id


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How calls are written."""

    read: Callable[[Reader, Collection[str]], Read[None]]
    """Reads an answer to its end, with calls of the functions named."""
    markers: tuple[str, ...]
    """What may be control tokens in a vocabulary."""
    new_id: Callable[[], str] = _new_id
    id_for_template: Callable[[str], str] = _same_id
    form: CallForm | None = None
    """How calls are written that must be made; None where no grammar says it."""


TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat(hermes.read, (hermes.BEGIN, hermes.END), form=hermes.FORM),
    "llama3_json": ToolFormat(llama3_json.read, (llama3_json.BEGIN,), form=llama3_json.FORM),
    "mistral": ToolFormat(
        mistral.read,
        (mistral.BEGIN, mistral.ARGS, mistral.CALL_ID),
        new_id=mistral.new_id,
        id_for_template=mistral.id_for_template,
        form=mistral.FORM,
    ),
    "pythonic": ToolFormat(pythonic.read, (pythonic.BEGIN, pythonic.END)),
    "harmony": ToolFormat(harmony.read, harmony.MARKERS, form=harmony.FORM),
}
REASONING_FORMATS: Mapping[str, Marks] = {"think": think.THINK, "mistral": think.MISTRAL}
"""``harmony`` besides, whose channels have calls and reasoning alike."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What the answers of one model consist of."""

    tools: ToolFormat | None = None
    """None: calls are text of the answer."""
    reasoning: Marks | None = None
    channels: bool = False
    """Whether all of it is in harmony's channels."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Marks that are control tokens of the vocabulary -> their ids."""

    @classmethod
    def of(
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
        return cls(tools, reasoning, channels, ids)

    @property
    def reasons(self) -> bool:
        """Whether answers may have reasoning."""
        return self.reasoning is not None or self.channels

    def new_id(self) -> str:
        """Of a call."""
        return _new_id() if self.tools is None else self.tools.new_id()

    def id_for_template(self, call_id: str) -> str:
        """The id of a call as the model's template takes it."""
        return call_id if self.tools is None else self.tools.id_for_template(call_id)

    def parser(self, names: Collection[str] = (), prompt: str = "") -> AnswerParser:
        """``names``: functions that may be called. ``prompt``: its end at least, in which reasoning may have begun."""

        def read(reader: Reader) -> Read[None]:
            if self.reasoning is not None:
                yield from think.read(reader, self.reasoning, self.reasoning.begun(prompt))
            if self.channels:
                yield from harmony.read(reader, names if self.tools is not None else ())
            elif self.tools is not None and names:
                yield from self.tools.read(reader, names)
            yield from reader.pass_rest(Content)

        return AnswerParser(read, frozenset(self.special.values()))

    def grammar(self, calls: RequiredCalls, prompt: str) -> str | None:
        """Of answers that have calls, in llguidance's Lark; None where none can be said. ``prompt`` as above."""
        if self.tools is None or self.tools.form is None:
            return None
        thought = None
        if self.reasoning is not None and not self.reasoning.over(prompt):
            thought = Thought(*self.reasoning, begun=self.reasoning.begun(prompt))
        elif self.channels:
            thought = harmony.THOUGHT
        return lark(self.tools.form, calls, thought, self.special)


def _tool_format(template: str) -> str:
    """Formats that share marks with others come after those; what is none of ours has marks of its own, too."""
    if "<|channel|>" in template:
        return "harmony"
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<tool_call>" in template:
        # Qwen3-Coder and GLM have XML between the same marks.
        return "none" if "<function=" in template or "<arg_key>" in template else "hermes"
    if "<|python_start|>" in template or "func_name1(params_name1" in template:
        return "pythonic"
    if "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return "llama3_json"
    return "none"


def _reasoning_format(template: str) -> str:
    if "<|channel|>" in template:
        return "harmony"
    return next((name for name, marks in REASONING_FORMATS.items() if marks.end in template), "none")
