"""``<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>``: GLM-4.5 and later.

An argument whose type in the tool's schema is not a string is JSON. Strings are streamed, other values when complete.
"""

import re
from collections.abc import Mapping
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NAME, NamedArguments
from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.typed_values import pass_named
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import ArgumentTypes

BEGIN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"
MARKERS = (BEGIN, END, KEY, KEY_END, VALUE, VALUE_END)
FORM = CallForm(
    f"{BEGIN}%s\n",
    END,
    between="\n",
    arguments=NamedArguments(f"{KEY}%s{KEY_END}\n{VALUE}", f"{VALUE_END}\n", name=NAME, marks=(VALUE_END, END)),
    begun=CallSpelling(BEGIN, (" %s ",), END),
)
MAX_NAME = 1024


_NAMED = re.compile(r"\s*([^\s<]+)(?:\s+|\s*(<.*))")
"""A complete name, and the text behind it."""


def read_answer(reader: Reader, tools: Mapping[str, Mapping[str, Any]]) -> Read[None]:
    """Read content and calls. Superfluous marks behind a call are dropped; marks around other text stay content."""
    types: dict[str, ArgumentTypes] = {}
    marks: tuple[str, ...] = (BEGIN,)
    while marker := (yield from reader.pass_until(marks, Content)):
        if marker != BEGIN:
            reader.commit()
            continue
        opened = reader.place
        reader.starved = False
        name = yield from reader.read_until((KEY, END), MAX_NAME)
        if name is not None and (name := name.strip()) in tools:
            reader.commit()
            yield CallBegin(name)
            yield from _read_arguments(reader, types.setdefault(name, ArgumentTypes(tools[name])))
            yield from reader.drop_leftover(MARKERS[1:])
            marks = MARKERS
        elif name is None and reader.starved and (yield from _read_cut(reader, opened, tools)):
            return
        else:
            yield Content(reader.reject(opened))
            marks = (BEGIN,)


def _read_cut(reader: Reader, opened: int, tools: Mapping[str, Mapping[str, Any]]) -> Read[bool]:
    """Read a call that ends before its first argument, with or without its name; False where the text is no call."""
    rest = reader.held[opened:]
    found, begun = _NAMED.fullmatch(rest), rest.strip()
    if found is not None and found[1] in tools and any(marker.startswith(found[2] or "") for marker in (KEY, END)):
        yield CallBegin(found[1])
        reader.reject(len(reader.held))
        return True
    if not begun or not any(name.startswith(begun) for name in tools):
        return False
    reader.drop_cut_call()
    return True


def _read_arguments(reader: Reader, types: ArgumentTypes) -> Read[None]:
    yield Arguments("{")
    seen: set[str] = set()
    while (yield from reader.peek_solid()) and (yield from reader.match_option(KEY)):
        key = yield from reader.read_until((KEY_END,))
        yield from reader.match_option(KEY_END)
        yield from reader.peek_solid()
        cut = key is None or (not (yield from reader.match_option(VALUE)) and reader.ends_in((VALUE,)))
        name = "" if key is None else key.strip()
        if cut or not (yield from pass_named(reader, name, seen, (VALUE_END, END), types)):
            # Cut off.
            reader.reject(len(reader.held))
            return
        yield from reader.match_option(VALUE_END)
        reader.commit()
    if (yield from reader.match_option(END)):
        reader.commit()
        yield Arguments("}")
    elif reader.ends_in(MARKERS):
        reader.reject(len(reader.held))
    else:
        reader.reject()
        yield Arguments("}")
