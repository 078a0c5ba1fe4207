"""``{"name": "f", "parameters": {}}`` as the whole answer, or after ``<|python_tag|>``: Llama 3.1 to 3.3.

Several calls have ``;``, a comma or nothing but white space between them.
"""

from collections.abc import Collection

from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.json_calls import read_calls
from paternoster_engine.server.parsers.events import Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<|python_tag|>"
FORM = CallForm(
    '{"name": "%s", "parameters": ',
    "}",
    between="; ",
    begun=CallSpelling(
        # The name alone separates a call from other JSON.
        r"(?:\A\s*[;,]?\s*|<\|python_tag\|>\s*)\{\s*(?:\"type\"\s*:\s*\"function\"\s*,\s*)?\"name\"\s*:\s*\""
        r"(?P<held>(?:%s)\")",
        ('%s" , "parameters": ', '%s" , "arguments": '),
        " }",
    ),
)


def read_answer(reader: Reader, names: Collection[str]) -> Read[None]:
    yield from _read_all(reader, names)
    while (yield from reader.pass_until((BEGIN,), Content)):
        opened = reader.place
        if (yield from _read_all(reader, names)):
            continue
        if reader.starved and reader.held[opened:].lstrip()[:1] == "{":
            reader.drop_cut_call()
        else:
            yield Content(reader.reject(opened))


def _read_all(reader: Reader, names: Collection[str]) -> Read[bool]:
    """Read all calls there are; False, and nothing is committed, where there is none."""
    num_calls = 0
    while (yield from read_calls(reader, names)):
        num_calls += 1
        yield from reader.drop_leftover()
        if (yield from reader.peek_solid()) in (";", ","):
            reader.place += 1
    if num_calls:
        reader.reject()
    return num_calls > 0
