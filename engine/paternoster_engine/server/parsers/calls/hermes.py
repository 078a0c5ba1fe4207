"""``<tool_call>{"name": "f", "arguments": {}}</tool_call>``: Hermes, Qwen 2.5 and 3, SmolLM2 and 3, Granite 4.

SmolLM2 writes a list of such objects between the marks.
"""

from collections.abc import Collection

from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.json_calls import read_calls
from paternoster_engine.server.parsers.events import Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<tool_call>"
END = "</tool_call>"
FORM = CallForm(
    f'{BEGIN}\n{{"name": "%s", "arguments": ',
    f"}}\n{END}",
    between="\n",
    begun=CallSpelling(BEGIN, ('{ "name": "%s", "arguments": ',), " }", listed=True, end=END),
)


def read_answer(reader: Reader, names: Collection[str]) -> Read[None]:
    """Read content and calls. Superfluous marks behind a call are dropped; marks around other text stay content."""
    marks: tuple[str, ...] = (BEGIN,)
    while marker := (yield from reader.pass_until(marks, Content)):
        if marker == END:
            reader.commit()
            continue
        opened = reader.place
        if (yield from read_calls(reader, names, END)):
            yield from reader.drop_leftover((END,))
            marks = (BEGIN, END)
        elif reader.starved and reader.held[opened:].lstrip()[:1] in ("{", "["):
            reader.drop_cut_call()
        else:
            yield Content(reader.reject(opened))
            marks = (BEGIN,)
