"""``<tool_call>{"name": "f", "arguments": {}}</tool_call>``: Hermes, Qwen 2.5 and 3, SmolLM2 and 3, Granite 4.

SmolLM2 writes a list of such objects between the marks.
"""

from collections.abc import Collection

from paternoster_engine.server.parsers.call_form import Begun, CallForm
from paternoster_engine.server.parsers.calls.json_calls import read_calls
from paternoster_engine.server.parsers.events import Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<tool_call>"
END = "</tool_call>"
FORM = CallForm(
    f'{BEGIN}\n{{"name": "%s", "arguments": ',
    f"}}\n{END}",
    between="\n",
    begun=Begun(BEGIN, ('{ "name": "%s", "arguments": ',), " }", listed=True, end=END),
)


def read(reader: Reader, names: Collection[str]) -> Read[None]:
    """White space between calls, and before the first, is none of the answer's."""
    while (yield from reader.pass_until((BEGIN,), Content)):
        opened = reader.place
        if not (yield from read_calls(reader, names, END)):
            yield Content(reader.reject(opened))
            continue
        yield from reader.peek_solid()
        if (yield from reader.take(END)):
            yield from reader.peek_solid()
        reader.commit()
