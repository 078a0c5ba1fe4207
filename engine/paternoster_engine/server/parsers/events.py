"""What an answer consists of, in the order in which it was written."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str
    tokens: tuple[Any, ...] = ()
    """A ``TokenText`` of each of its tokens, where log probabilities are of content alone."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool is called; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """Text of the last call's arguments: JSON, as far as the model wrote JSON."""

    text: str


Event = Content | Reasoning | CallBegin | Arguments

Read = Generator[Event | None, None, T]
"""Reads text, yields what it is, and None where it needs more; its result is a ``T``."""


def join_events(events: Iterable[Event]) -> list[Event]:
    """Join neighbours of one kind into one event, and leave out empty ones."""
    result: list[Event] = []
    nonempty = (event for event in events if isinstance(event, CallBegin) or event.text)
    for _, neighbours in groupby(nonempty, type):
        first, *others = neighbours
        if isinstance(first, CallBegin):
            result += [first, *others]
        else:
            result.append(_as_one([first, *others]) if others else first)
    return result


def _as_one(events: Sequence[Event]) -> Event:
    """Events of one kind that is no :class:`CallBegin`."""
    text = "".join(event.text for event in events if not isinstance(event, CallBegin))
    if isinstance(events[0], Content):
        return Content(text, tuple(token for event in events if isinstance(event, Content) for token in event.tokens))
    return Reasoning(text) if isinstance(events[0], Reasoning) else Arguments(text)


class JoinedTexts:
    """Joins texts of one kind, with a line break where another event came between and no white space separates them."""

    def __init__(self) -> None:
        self._last = ""
        """The last character."""
        self._apart = False

    def start_line(self) -> None:
        """Record that another event comes between the last text and the next one."""
        self._apart = True

    def join_next(self, text: str) -> str:
        """Return ``text``, with a line break before it where it needs one."""
        glued = self._apart and text and self._last and not self._last.isspace() and not text[0].isspace()
        if text:
            self._last, self._apart = text[-1], False
        return f"\n{text}" if glued else text


class Calls:
    """The events of one answer as they come, with its calls or with the first alone."""

    def __init__(self, *, parallel: bool) -> None:
        """``parallel``: pass on more than one."""
        self._parallel = parallel
        self._num_calls = 0
        self._texts = JoinedTexts()

    def filter_events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield ``events`` without the calls after the first, unless several are allowed."""
        for event in events:
            self._num_calls += isinstance(event, CallBegin)
            if isinstance(event, Content):
                yield Content(self._texts.join_next(event.text), event.tokens)
            elif self._parallel or self._num_calls <= 1 or not isinstance(event, CallBegin | Arguments):
                self._texts = JoinedTexts()
                yield event
            else:
                # Left out, so that texts around it are next to each other.
                self._texts.start_line()
