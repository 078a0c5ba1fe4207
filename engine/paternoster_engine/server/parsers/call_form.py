"""How a format's calls begin and end, and from that grammars of answers that must have some, or may."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.free_text import FreeText
from paternoster_engine.sampling.grammars.json_schema import narrowed


@dataclass(frozen=True, slots=True)
class CallForm:
    """Text around the arguments of calls, which are JSON; ``%s`` is the function's name."""

    before: str
    after: str
    between: str | None = None
    """Between two calls; None: an answer has one."""
    opening: str = ""
    closing: str = ""
    """Around all calls of an answer."""
    begun: "Begun | None" = None
    """How calls go on that a model begins by itself; None: they are not held to anything."""

    def begins_as_json(self, special: Iterable[str]) -> bool:
        """Whether an answer of calls may begin as a JSON value does. ``special``: marks that are control tokens."""
        begin = self.opening + self.before
        return begin[0] in '{["-0123456789tfn' and not begin.startswith(tuple(special))


@dataclass(frozen=True, slots=True)
class Begun:
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


class Marked(NamedTuple):
    """A thought that comes first, without the thought itself and the mark that ends it."""

    begin: str
    """Its first mark, with which there may be none; empty where the prompt has it."""
    rest: str
    """What follows it. A space is white space or none."""


class Outline(NamedTuple):
    """What an answer is held to, and where it is free."""

    lark: str
    """In llguidance's dialect; may refer to a grammar ``@answer``."""
    free: FreeText


SPACE = r"/[ \n\t]{0,3}/"
CALLS = "calls"


def lark(
    form: CallForm | None,
    calls: RequiredCalls | None,
    thought: Marked | None,
    special: Mapping[str, int],
    answer: str | None = None,
) -> str:
    """Of answers that have calls, or else are ``answer``: what stands before what the client describes.

    ``special``: marks that are control tokens -> their ids. Schemas stand at the root of a grammar of their own, so
    that their ``$ref`` lead where they did.
    """
    terms = [] if thought is None else [*_terms(thought.begin, special), *_terms(thought.rest, special, loose=True)]
    head = f"({' '.join(terms)})? " if thought is not None and thought.begin else "".join(f"{term} " for term in terms)
    options: list[str] = []
    rules: list[str] = []
    if form is not None and calls is not None:
        options.append(CALLS)
        rules = [f"{CALLS}: {_calls(form, calls, special)}", *_rules(calls, (form.before,), form.after, special)]
    if answer is not None:
        options.append("answer")
        rules.append("answer: " + " ".join([*_terms(answer, special), "@answer"]))
    return "\n".join([f"start: {head}({' | '.join(options)})", *rules]) + "\n"


def lark_of_begun(begun: Begun, calls: RequiredCalls, special: Mapping[str, int]) -> str:
    """Of a call that has begun; see :func:`lark`."""
    terms = list(_terms(begun.end, special))
    if begun.listed:
        start = " ".join([SPACE, f'(call | "[" {SPACE} call ({SPACE} "," {SPACE} call)* {SPACE} "]")', SPACE, *terms])
    else:
        start = " ".join(["call", *terms])
    return "\n".join([f"start: {start}", *_rules(calls, begun.before, begun.after, special, loose=True)]) + "\n"


def _calls(form: CallForm, calls: RequiredCalls, special: Mapping[str, int]) -> str:
    terms = [*_terms(form.opening, special), "call"]
    if calls.several and form.between is not None:
        terms.append(f"({' '.join([*_terms(form.between, special), 'call'])})*")
    return " ".join([*terms, *_terms(form.closing, special)])


def _rules(
    calls: RequiredCalls, befores: Sequence[str], after: str, special: Mapping[str, int], *, loose: bool = False
) -> Iterator[str]:
    yield "call: " + " | ".join(f"call_{i}" for i in range(len(calls.tools)))
    for i, (name, schema) in enumerate(calls.tools):
        begins = [" ".join(_terms(before % name, special, loose=loose)) for before in befores]
        begin = begins[0] if len(begins) == 1 else f"({' | '.join(begins)})"
        yield " ".join([f"call_{i}:", begin, f"arguments_{i}", *_terms(after, special, loose=loose)])
        yield f"arguments_{i}: %json {json.dumps(narrowed({'type': 'object', **schema}))}"


def _terms(text: str, special: Mapping[str, int], *, loose: bool = False) -> Iterator[str]:
    marks = [*special, *([" "] if loose else ())]
    for piece in re.split("(" + "|".join(map(re.escape, marks)) + ")", text) if marks else [text]:
        if piece in special:
            yield f"<[{special[piece]}]>"
        elif loose and piece == " ":
            yield SPACE
        elif piece:
            yield json.dumps(piece)
