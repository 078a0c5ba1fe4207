"""``<tool_call><function=f><parameter=a>1</parameter></function></tool_call>``: Qwen3-Coder, and later Qwen.

An argument is told when it is whole. Some answers leave ``<tool_call>`` out, and some what ends an argument.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NAME, NamedArguments
from paternoster_engine.server.parsers.call_form import Begun, CallForm
from paternoster_engine.server.parsers.calls.typed_values import json_of, read_value
from paternoster_engine.server.parsers.events import Arguments, Call, Content, Read
from paternoster_engine.server.parsers.reader import Reader
from paternoster_engine.server.parsers.schemas import ArgumentTypes

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
VALUE_ENDS = (PARAMETER_END, PARAMETER, FUNCTION_END)
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
    begun=Begun(
        rf"(?:{BEGIN}|(?={FUNCTION}(?:%s)>))(?P<held>(?:{FUNCTION}(?:%s)>)?)",
        (f" {FUNCTION}%s>\n",),
        FUNCTION_END,
    ),
)
_NAME = re.compile(r"[^<>\n]+")
MAX_NAME = 1024


def read(reader: Reader, tools: Mapping[str, Mapping[str, Any]]) -> Read[None]:
    """White space between calls, and before the first, is none of the answer's."""
    types: dict[str, ArgumentTypes] = {}
    while marker := (yield from reader.pass_until((BEGIN, FUNCTION), Content)):
        opened = reader.place
        if marker == BEGIN:
            yield from reader.peek_solid()
        begun = marker == FUNCTION or (yield from reader.take(FUNCTION))
        if not begun or not (yield from _read_call(reader, tools, types)):
            yield Content(reader.reject(opened))
            continue
        yield from reader.peek_solid()
        if (yield from reader.take(END)):
            yield from reader.peek_solid()
        reader.commit()


def _read_call(reader: Reader, tools: Mapping[str, Mapping[str, Any]], types: dict[str, ArgumentTypes]) -> Read[bool]:
    """``types``: of tools that have been called."""
    name = yield from _named(reader)
    if name is None or name not in tools:
        return False
    reader.commit()
    yield Call(name)
    yield Arguments("{")
    seen: set[str] = set()
    of_tool = types.setdefault(name, ArgumentTypes(tools[name]))
    while True:
        yield from reader.peek_solid()
        if not (yield from reader.take(PARAMETER)):
            break
        key = yield from _named(reader)
        key = None if key is None else key.strip()
        kinds = of_tool.of_argument(key or "")
        text = None if key is None else (yield from read_value(reader, VALUE_ENDS, kinds))
        if key is None or text is None:
            # Cut off.
            reader.reject(len(reader.held))
            return True
        yield from reader.take(PARAMETER_END)
        reader.commit()
        if key not in seen:
            value = json_of(text.removeprefix("\n").removesuffix("\n"), kinds)
            yield Arguments(f"{', ' if seen else ''}{json.dumps(key, ensure_ascii=False)}: {value}")
            seen.add(key)
    if (yield from reader.take(FUNCTION_END)) or (yield from reader.peek()) != "":
        yield Arguments("}")
    reader.commit()
    return True


def _named(reader: Reader) -> Read[str | None]:
    """A name and the ``>`` behind it."""
    name = yield from reader.match(_NAME, MAX_NAME)
    return name if name is not None and (yield from reader.take(">")) else None
