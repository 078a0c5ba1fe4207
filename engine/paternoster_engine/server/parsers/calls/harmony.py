"""gpt-oss's channels: ``analysis`` is reasoning, ``final`` the answer, ``to=functions.f`` a call.

https://cookbook.openai.com/articles/openai-harmony. ``openai-harmony`` reads tokens of one vocabulary, which it
downloads; this reads text.
"""

import re
from collections.abc import Callable, Collection

from paternoster_engine.server.parsers.call_form import Begun, CallForm, Marked
from paternoster_engine.server.parsers.events import Arguments, Call, Content, Event, Read, Reasoning
from paternoster_engine.server.parsers.reader import Reader

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)
FORM = CallForm(
    f"{CHANNEL}commentary to=functions.%s {CONSTRAIN}json{MESSAGE}",
    "",
    begun=Begun(
        r"(?:<\|channel\|>|<\|start\|>)[^<]*\bto=functions\.",
        tuple(
            f"%s{channel}{constrain}{MESSAGE}"
            for channel in ("", f"{CHANNEL}commentary")
            for constrain in (f" {CONSTRAIN}json", " json", "")
        ),
        "",
        several=False,
    ),
)
THOUGHT = Marked(f"{CHANNEL}analysis{MESSAGE}", f"{START}assistant")
THOUGHT_END = "<|end|>"
ANSWER = f"{CHANNEL}final{MESSAGE}"
MAX_HEADER = 1024
"""Characters before ``<|message|>``; what has more is no header."""
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)")
_HEADER = re.compile(r"(<\|start\|>|<\|channel\|>|to=|assistant)")


def read(reader: Reader, names: Collection[str]) -> Read[None]:
    """A message without a header is part of the answer: so is one whose template has opened its channel."""
    while (yield from reader.peek_solid()) != "":
        reader.commit()
        header = yield from _header(reader)
        make: Callable[[str], Event] = Content
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient is not None and recipient[1] in names:
            yield Call(recipient[1])
            make = Arguments
        elif recipient is None and channel is not None and channel[1] == "analysis":
            make = Reasoning
            reader.reasoning = True
        marker = yield from reader.pass_until((START, *ENDS), make)
        reader.reasoning = False
        if marker == START:
            # A message that nothing ended.
            reader.place -= len(START)
        reader.commit()


def _header(reader: Reader) -> Read[str]:
    """Up to ``<|message|>``; empty where the text begins without one. One that is cut off is dropped."""
    while True:
        end = reader.held.find(MESSAGE)
        found = _HEADER.match(reader.held)
        if 0 <= end <= MAX_HEADER and (found is not None or end == 0):
            reader.place = end + len(MESSAGE)
            return reader.commit()
        could = found is not None or len(reader.held) < len(CHANNEL)
        if not could or len(reader.held) > MAX_HEADER + len(MESSAGE):
            return ""
        if not (yield from reader.more()):
            if reader.held.startswith((START, CHANNEL)):
                reader.reject(len(reader.held))
            return ""
