"""``<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>``: GLM-4.5 and later.

Text that is no string in the tool's schema is JSON. An argument is told when it is whole.
"""

import json
from collections.abc import Mapping
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NAME, NamedArguments
from paternoster_engine.server.parsers.call_form import Begun, CallForm
from paternoster_engine.server.parsers.calls.typed_values import json_of, read_value
from paternoster_engine.server.parsers.events import Arguments, Call, Content, Read
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
    begun=Begun(BEGIN, (" %s ",), END),
)
MAX_NAME = 1024


def read(reader: Reader, tools: Mapping[str, Mapping[str, Any]]) -> Read[None]:
    """White space between calls, and before the first, is none of the answer's."""
    types: dict[str, ArgumentTypes] = {}
    while (yield from reader.pass_until((BEGIN,), Content)):
        opened = reader.place
        name = yield from reader.until((KEY, END), MAX_NAME)
        if name is None or (name := name.strip()) not in tools:
            yield Content(reader.reject(opened))
            continue
        reader.commit()
        yield Call(name)
        yield from _read_arguments(reader, types.setdefault(name, ArgumentTypes(tools[name])))


def _read_arguments(reader: Reader, types: ArgumentTypes) -> Read[None]:
    yield Arguments("{")
    seen: set[str] = set()
    while (yield from reader.peek_solid()) and (yield from reader.take(KEY)):
        key = yield from reader.until((KEY_END,))
        yield from reader.take(KEY_END)
        yield from reader.peek_solid()
        yield from reader.take(VALUE)
        kinds = types.of_argument("" if key is None else key.strip())
        text = None if key is None else (yield from read_value(reader, (VALUE_END, END), kinds))
        if key is None or text is None:
            # Cut off.
            reader.reject(len(reader.held))
            return
        yield from reader.take(VALUE_END)
        reader.commit()
        key = key.strip()
        if key not in seen:
            comma = ", " if seen else ""
            yield Arguments(f"{comma}{json.dumps(key, ensure_ascii=False)}: {json_of(text, kinds)}")
            seen.add(key)
    if (yield from reader.take(END)) or (yield from reader.peek()) != "":
        yield Arguments("}")
    yield from reader.peek_solid()
    reader.commit()
