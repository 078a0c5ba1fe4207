"""gpt-oss's channels: ``analysis`` is reasoning, ``final`` the answer, ``to=functions.f`` a call.

https://cookbook.openai.com/articles/openai-harmony. ``openai-harmony`` reads tokens of one vocabulary, which it
downloads; this reads text.
"""

import re
from collections.abc import Callable, Collection

from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling, MarkedThought
from paternoster_engine.server.parsers.calls.json_calls import JsonValue
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Read, Reasoning
from paternoster_engine.server.parsers.reader import Reader

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)
FORM = CallForm(
    f"{CHANNEL}commentary to=functions.%s {CONSTRAIN}json{MESSAGE}",
    "",
    begun=CallSpelling(
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
THOUGHT = MarkedThought(f"{CHANNEL}analysis{MESSAGE}", f"{START}assistant")
THOUGHT_END = "<|end|>"
ANSWER = f"{CHANNEL}final{MESSAGE}"
MAX_HEADER = 1024
"""Characters before ``<|message|>``; what has more is no header."""
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)")
_WHOLE_RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)(?=[\s<])")
_OF_CALL = re.compile(r"<\|channel\|>\s*c|\bto=")
"""Found in the beginning of a call's header."""
_HEADER = re.compile(r"(<\|start\|>|<\|channel\|>|to=|assistant)")


def read_answer(reader: Reader, names: Collection[str]) -> Read[None]:
    """A message without a header is part of the answer: so is one whose template has opened its channel."""
    last: type[Event] | None = None
    while (yield from reader.peek_solid()) != "":
        reader.commit()
        header = yield from _read_header(reader, names)
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        make: Callable[[str], Event]
        if recipient is not None and recipient[1] in names:
            yield CallBegin(recipient[1])
            make, last = _OneObject(), Arguments
        else:
            thinks = recipient is None and channel is not None and channel[1] == "analysis"
            kind = Reasoning if thinks else Content
            make, last = (_NextMessage(kind) if kind is last else kind), kind
            reader.reasoning = thinks
        marker = yield from reader.pass_until((START, *ENDS), make, strips=True)
        reader.reasoning = False
        if marker == START:
            # A message that nothing ended.
            reader.place -= len(START)
        reader.commit()


class _OneObject:
    """Makes events of arguments up to the end of their JSON object, and drops superfluous brackets behind it."""

    def __init__(self) -> None:
        self._value: JsonValue | None = None
        self._begun = self._ended = False

    def __call__(self, text: str) -> Event:
        if text and not self._begun:
            self._begun = True
            self._value = JsonValue() if text.lstrip()[:1] == "{" else None
        if self._ended:
            return Arguments("")
        end = -1 if self._value is None else self._value.find_end(text, 0)
        self._ended = end >= 0
        return Arguments(text[: end + 1] if self._ended else text)


class _NextMessage:
    """Makes events of a message that follows another of its kind, with a newline between the two."""

    def __init__(self, kind: type[Content] | type[Reasoning]) -> None:
        self._kind = kind
        self._begun = False

    def __call__(self, text: str) -> Event:
        apart = "\n" if text and not self._begun else ""
        self._begun = self._begun or bool(text)
        return self._kind(apart + text)


def _read_header(reader: Reader, names: Collection[str]) -> Read[str]:
    """Read up to ``<|message|>``; empty where the text begins without a header.

    A header that is cut off is dropped, except for the name of a call.
    """
    while True:
        end = reader.held.find(MESSAGE)
        found = _HEADER.match(reader.held)
        if 0 <= end <= MAX_HEADER and (found is not None or end == 0):
            reader.place = end + len(MESSAGE)
            return reader.commit()
        could = found is not None or len(reader.held) < len(CHANNEL)
        if not could or len(reader.held) > MAX_HEADER + len(MESSAGE):
            return ""
        if not (yield from reader.wait_for_text()):
            if reader.held.startswith((START, CHANNEL)):
                recipient = _WHOLE_RECIPIENT.search(reader.held)
                if recipient is not None and recipient[1] in names:
                    yield CallBegin(recipient[1])
                elif _OF_CALL.search(reader.held):
                    reader.cut_call = True
                reader.reject(len(reader.held))
            return ""
