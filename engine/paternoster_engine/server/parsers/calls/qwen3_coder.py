"""``<tool_call><function=f><parameter=a>1</parameter></function></tool_call>``: Qwen3-Coder, and later Qwen.

Strings are streamed, other values when they are complete. Some answers leave out ``<tool_call>``, and some the end mark
of an argument.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NAME, NamedArguments
from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.typed_values import pass_named
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import ArgumentTypes

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
VALUE_ENDS = (PARAMETER_END, PARAMETER, FUNCTION_END)
ENDS = (END, FUNCTION_END, PARAMETER_END)
FORM = CallForm(
    f"{BEGIN}\n{FUNCTION}%s>\n",
    f"{FUNCTION_END}\n{END}",
    between="\n",
    arguments=NamedArguments(
        f"{PARAMETER}%s>\n",
        f"\n{PARAMETER_END}\n",
        name=NAME,
        marks=VALUE_ENDS,
    ),
    begun=CallSpelling(
        rf"(?:{BEGIN}|(?={FUNCTION}(?:%s)>))(?P<held>(?:{FUNCTION}(?:%s)>)?)",
        (f" {FUNCTION}%s>\n",),
        FUNCTION_END,
    ),
)
_NAME = re.compile(r"[^<>\n]+")
MAX_NAME = 1024


def read_answer(reader: Reader, tools: Mapping[str, Mapping[str, Any]]) -> Read[None]:
    """Read content and calls. Superfluous marks behind a call are dropped; marks around other text stay content."""
    types: dict[str, ArgumentTypes] = {}
    marks: tuple[str, ...] = (BEGIN, FUNCTION)
    while marker := (yield from reader.pass_until(marks, Content)):
        if marker not in (BEGIN, FUNCTION):
            reader.commit()
            continue
        opened = reader.place
        reader.starved = False
        if marker == BEGIN:
            yield from reader.peek_solid()
        begun = marker == FUNCTION or (yield from reader.match_option(FUNCTION))
        if begun and (yield from _read_call(reader, tools, types)):
            yield from reader.drop_leftover(ENDS)
            marks = (BEGIN, FUNCTION, *ENDS)
        elif reader.starved and (rest := reader.held[opened:].strip()) and _begins_call(rest, marker, tools):
            reader.drop_cut_call()
        else:
            yield Content(reader.reject(opened))
            marks = (BEGIN, FUNCTION)


def _begins_call(rest: str, marker: str, tools: Collection[str]) -> bool:
    """Whether ``rest``, the text behind ``marker``, may be the beginning of a call."""
    opening = FUNCTION if marker == BEGIN else ""
    return any(f"{opening}{name}>".startswith(rest) for name in tools)


def _read_call(reader: Reader, tools: Mapping[str, Mapping[str, Any]], types: dict[str, ArgumentTypes]) -> Read[bool]:
    """``types``: of tools that have been called."""
    name = yield from _read_name(reader)
    if name is None or name not in tools:
        return False
    reader.commit()
    yield CallBegin(name)
    yield Arguments("{")
    seen: set[str] = set()
    of_tool = types.setdefault(name, ArgumentTypes(tools[name]))
    while True:
        yield from reader.peek_solid()
        if not (yield from reader.match_option(PARAMETER)):
            break
        key = yield from _read_name(reader)
        if key is None or not (yield from pass_named(reader, key.strip(), seen, VALUE_ENDS, of_tool, line_breaks=True)):
            # Cut off.
            reader.reject(len(reader.held))
            return True
        yield from reader.match_option(PARAMETER_END)
        reader.commit()
    if (yield from reader.match_option(FUNCTION_END)):
        reader.commit()
        yield Arguments("}")
    elif reader.ends_in((PARAMETER, *ENDS)):
        reader.reject(len(reader.held))
    else:
        reader.reject()
        yield Arguments("}")
    return True


def _read_name(reader: Reader) -> Read[str | None]:
    """A name and the ``>`` behind it."""
    name = yield from reader.match_pattern(_NAME, MAX_NAME)
    return name if name is not None and (yield from reader.match_option(">")) else None
