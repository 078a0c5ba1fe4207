"""Answers of models, as parsers take them apart, for properties of the APIs that tell of them."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
OBJECT = st.dictionaries(st.text("ab", min_size=1, max_size=2), st.integers() | TEXT | st.none(), max_size=3)


@st.composite
def _call(draw: st.DrawFn) -> list[Event]:
    arguments = json.dumps(draw(OBJECT), ensure_ascii=False)
    cuts = sorted({0, len(arguments), *draw(st.lists(st.integers(0, len(arguments)), max_size=3))})
    pieces = [Arguments(arguments[start:end]) for start, end in pairwise(cuts)]
    return [CallBegin(draw(st.sampled_from(["get_weather", "add"]))), *pieces]


ANSWER = st.lists(
    TEXT.map(lambda text: [Content(text)]) | TEXT.map(lambda text: [Reasoning(text)]) | _call(), max_size=6
).map(lambda pieces: [event for piece in pieces for event in piece])
REASON = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH])


def content(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


def reasoning(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


def calls(events: Sequence[Event]) -> list[tuple[str, Any]]:
    """Name and arguments of each."""
    found: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, CallBegin):
            found.append((event.name, ""))
        elif isinstance(event, Arguments):
            found[-1] = (found[-1][0], found[-1][1] + event.text)
    return [(name, json.loads(arguments)) for name, arguments in found]
