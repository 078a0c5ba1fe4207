"""How a format's calls begin and end, and from that grammars of answers that must have some, or may."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.free_text import FreeText
from paternoster_engine.sampling.grammars.limits import MAX_BYTES
from paternoster_engine.server.parsers.arguments.json_object import Arguments, json_object
from paternoster_engine.server.parsers.arguments.terms import SPACE, write_terms


@dataclass(frozen=True, slots=True)
class CallForm:
    """Text around the arguments of calls; ``%s`` is the function's name."""

    before: str
    after: str
    between: str | None = None
    """Between two calls; None: an answer has one."""
    opening: str = ""
    closing: str = ""
    """Around all calls of an answer."""
    arguments: Arguments = json_object
    """How they are written."""
    begun: "CallSpelling | None" = None
    """How calls go on that a model begins by itself; None: no grammar restricts them."""

    def begins_as_json(self, special: Iterable[str]) -> bool:
        """Whether an answer of calls may begin as a JSON value does. ``special``: marks that are control tokens."""
        begin = self.opening + self.before
        return begin[0] in '{["-0123456789tfn' and not begin.startswith(tuple(special))


@dataclass(frozen=True, slots=True)
class CallSpelling:
    """What follows the beginning of a call. Where it has a space there may be white space or none."""

    by: str
    """A regular expression of the beginning; ``%s`` is one of the functions' names. Its group ``held`` is a part of
    what follows.
    """
    before: tuple[str, ...]
    """One of them is before the arguments; ``%s`` is the function's name."""
    after: str
    listed: bool = False
    """Whether it may be a list of such calls as well."""
    end: str = ""
    """Behind the call, or the list."""
    several: bool = True
    """Whether text and other calls may follow."""


class RequiredCalls(NamedTuple):
    """Which functions are to be called."""

    tools: Sequence[tuple[str, Mapping[str, Any]]]
    """Names, and schemas of the arguments."""
    several: bool
    """Whether there may be more than one call."""


class MarkedThought(NamedTuple):
    """A thought that comes first, without the thought itself and the mark that ends it."""

    begin: str
    """Its first mark, with which there may be none; empty where the prompt has it."""
    rest: str
    """What follows it. A space is white space or none."""


class ArgumentsError(GrammarError):
    """No grammar can express what the arguments of ``tool`` must be."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(reason)
        self.tool = tool


CALLS = "calls"
ARGUMENTS = "arguments"
_PLACED = re.compile(r"at (\d+)\(\d+\): (?:failed to compile JSON schema: )?(.*?)(?:\n +\d+ \| .*)?", re.DOTALL)
"""How llguidance reports a fault: its line, the fault, and the lines around it."""


class Outline(NamedTuple):
    """What an answer must match, and where it is free."""

    lark: str
    """In llguidance's dialect; may refer to a grammar ``@answer``."""
    free: FreeText
    tools: Sequence[str] = ()
    """Names of the functions, as its rules count them."""

    def describe_fault(self, error: GrammarError) -> GrammarError:
        """``error`` of a grammar that begins with this, without lines of it: the client has not written them."""
        placed, lines = _PLACED.fullmatch(str(error)), self.lark.split("\n")
        if not self.tools or placed is None or int(placed[1]) > len(lines):
            return error
        rule = re.match(rf"{ARGUMENTS}_(\d+)", lines[int(placed[1]) - 1])
        return GrammarError(placed[2]) if rule is None else ArgumentsError(self.tools[int(rule[1])], placed[2])


def write_lark(
    form: CallForm | None,
    calls: RequiredCalls | None,
    thought: MarkedThought | None,
    special: Mapping[str, int],
    answer: str | None = None,
) -> str:
    """Grammar of answers that have calls, or else are ``answer``: what stands before what the client describes.

    ``special``: marks that are control tokens -> their ids. Raises :class:`ArgumentsError` where rules of arguments do.
    """
    begin = (
        []
        if thought is None
        else [*write_terms(thought.begin, special), *write_terms(thought.rest, special, loose=True)]
    )
    head = f"({' '.join(begin)})? " if thought is not None and thought.begin else "".join(f"{term} " for term in begin)
    options: list[str] = []
    rules: list[str] = []
    if form is not None and calls is not None:
        options.append(CALLS)
        rules_of_calls = _grammar_rules(calls, (form.before,), form.after, form.arguments, special)
        rules = [f"{CALLS}: {_calls_rule(form, calls, special)}", *rules_of_calls]
    if answer is not None:
        options.append("answer")
        rules.append("answer: " + " ".join([*write_terms(answer, special), "@answer"]))
    return "\n".join([f"start: {head}({' | '.join(options)})", *rules]) + "\n"


def lark_of_begun(begun: CallSpelling, arguments: Arguments, calls: RequiredCalls, special: Mapping[str, int]) -> str:
    """Grammar of a call that has begun; see :func:`lark`."""
    end = list(write_terms(begun.end, special))
    if begun.listed:
        start = " ".join([SPACE, f'(call | "[" {SPACE} call ({SPACE} "," {SPACE} call)* {SPACE} "]")', SPACE, *end])
    else:
        start = " ".join(["call", *end])
    rules = _grammar_rules(calls, begun.before, begun.after, arguments, special, loose=True)
    return "\n".join([f"start: {start}", *rules]) + "\n"


def _calls_rule(form: CallForm, calls: RequiredCalls, special: Mapping[str, int]) -> str:
    begin = [*write_terms(form.opening, special), "call"]
    if calls.several and form.between is not None:
        begin.append(f"({' '.join([*write_terms(form.between, special), 'call'])})*")
    return " ".join([*begin, *write_terms(form.closing, special)])


def _grammar_rules(
    calls: RequiredCalls,
    befores: Sequence[str],
    after: str,
    arguments: Arguments,
    special: Mapping[str, int],
    *,
    loose: bool = False,
) -> Iterator[str]:
    yield "call: " + " | ".join(f"call_{i}" for i in range(len(calls.tools)))
    size = 0
    for i, (name, schema) in enumerate(calls.tools):
        begins = [" ".join(write_terms(before % name, special, loose=loose)) for before in befores]
        begin = begins[0] if len(begins) == 1 else f"({' | '.join(begins)})"
        yield " ".join([f"call_{i}:", begin, f"{ARGUMENTS}_{i}", *write_terms(after, special, loose=loose)])
        try:
            for line in arguments(f"{ARGUMENTS}_{i}", schema, special):
                size += len(line)
                yield line
        except GrammarError as error:
            raise ArgumentsError(name, str(error)) from error
        if size > MAX_BYTES:
            # The compiler would refuse it: the other schemas need not be read.
            raise GrammarError(f"the grammar of all tools has more than {MAX_BYTES} bytes")
