"""How a format's calls begin and end, and from that a grammar of answers that must have some."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


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


class RequiredCalls(NamedTuple):
    """Which functions are to be called."""

    tools: Sequence[tuple[str, Mapping[str, Any]]]
    """Names, and schemas of the arguments."""
    several: bool
    """Whether there may be more than one call."""


class Thought(NamedTuple):
    """Marks around what comes before the calls."""

    begin: str
    end: str
    begun: bool
    """Whether the prompt has the first mark."""


def lark(form: CallForm, calls: RequiredCalls, thought: Thought | None, special: Mapping[str, int]) -> str:
    """In llguidance's dialect of Lark. ``special``: marks that are control tokens -> their ids.

    Schemas stand at the root of a grammar of their own, so that their ``$ref`` lead where they did.
    """
    lines = [_start(form, calls, thought, special)]
    lines.append("call: " + " | ".join(f"call_{i}" for i in range(len(calls.tools))))
    for i, (name, schema) in enumerate(calls.tools):
        terms = [*_terms(form.before % name, special), f"arguments_{i}", *_terms(form.after, special)]
        lines.append(f"call_{i}: {' '.join(terms)}")
        lines.append(f"arguments_{i}: %json {json.dumps({'type': 'object', **schema})}")
    if thought is not None and any(mark in thought.end for mark in special):
        lines.append(f"thought: /(?s:.*)/ {' '.join(_terms(thought.end, special))}")
    elif thought is not None:
        lines.append(f"thought[suffix={json.dumps(thought.end)}]: /(?s:.*)/")
    return "\n".join(lines) + "\n"


def _start(form: CallForm, calls: RequiredCalls, thought: Thought | None, special: Mapping[str, int]) -> str:
    terms: list[str] = []
    if thought is not None and thought.begun:
        terms += ["thought", r"/\s{0,3}/"]
    elif thought is not None:
        terms.append(f"({' '.join(_terms(thought.begin, special))} thought" + r" /\s{0,3}/)?")
    terms += [*_terms(form.opening, special), "call"]
    if calls.several and form.between is not None:
        terms.append(f"({' '.join(_terms(form.between, special))} call)*")
    return "start: " + " ".join([*terms, *_terms(form.closing, special)])


def _terms(text: str, special: Mapping[str, int]) -> Iterator[str]:
    pieces = re.split("(" + "|".join(map(re.escape, special)) + ")", text) if special else [text]
    for piece in pieces:
        if piece in special:
            yield f"<[{special[piece]}]>"
        elif piece:
            yield json.dumps(piece)
