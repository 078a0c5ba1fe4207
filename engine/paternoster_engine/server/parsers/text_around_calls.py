"""Separate the content of an answer from its calls."""

from collections.abc import Sequence

from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Read
from paternoster_engine.server.parsers.reader import Reader


def strip_spaces(events: Read[None]) -> Read[None]:
    """Drop white space next to calls, unless it is between two texts."""
    spaces: list[str] = []
    """White space behind the last text that has not been emitted yet."""
    has_text = after_call = False
    for event in events:
        if isinstance(event, Content):
            solid = event.text.rstrip()
            if solid:
                text = "".join([*spaces, solid])
                yield Content(text.lstrip() if after_call and not has_text else text)
                has_text, after_call = True, False
                spaces.clear()
            spaces.append(event.text[len(solid) :])
            continue
        if isinstance(event, CallBegin | Arguments):
            after_call = True
        yield event
    if not after_call:
        yield Content("".join(spaces))


def only_calls(events: Read[None], reader: Reader, names: Sequence[str]) -> Read[None]:
    """Drop the content of an answer that a grammar restricts to calls: it is the beginning of a call that was cut.

    ``names``: the functions that may be called. If there is only one, the call has its name however early it was cut.
    """
    begun = called = False
    for event in events:
        if isinstance(event, Content):
            begun = begun or bool(event.text.strip())
            continue
        called = called or isinstance(event, CallBegin)
        yield event
    if (begun or reader.cut_call) and not called and len(names) == 1:
        yield CallBegin(names[0])
