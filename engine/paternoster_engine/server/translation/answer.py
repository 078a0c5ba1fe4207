"""What such an API makes of an answer to a chat: pure, one object for the plain answer and for the stream."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.generation.generation import Usage
from paternoster_engine.server.parsers.events import Event


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """How an answer ended."""

    reason: FinishReason
    """``STOP`` or ``LENGTH``: all others are failures."""
    usage: Usage
    stop: str | None = None
    """The stop string that ended it."""


class Frame(Protocol):
    """An event of a stream, named by its type."""

    @property
    def type(self) -> str: ...

    def model_dump_json(self) -> str: ...


class TranslatedAnswer(Protocol):
    """Collects an answer as it grows; each method yields the events of the stream for what is new."""

    id: str

    def start_frames(self, usage: Usage) -> Iterator[Frame]:
        """``usage``: of the prompt, as far as is known."""
        ...

    def event_frames(self, events: Iterable[Event]) -> Iterator[Frame]: ...

    def end_frames(self, end: AnswerEnd) -> Iterator[Frame]: ...

    def failure_frames(self, status: int, message: str) -> Iterator[Frame]:
        """In place of :meth:`end_frames`; ``status``: that of the whole answer of the same failure."""
        ...

    def build_answer(self) -> BaseModel:
        """After :meth:`end_frames`: the plain answer."""
        ...
