"""The parts of an answer that a grammar says nothing of: what a model thinks, and what it says before a call."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Thought:
    """Text between two marks at the beginning of an answer."""

    begin: str
    end: str
    begun: bool
    """Whether the prompt has the first mark."""


@dataclass(frozen=True, slots=True)
class FreeText:
    """Where the grammar rests. It describes the answer without these parts, and without the marks that end them."""

    thought: Thought | None = None
    call: str | None = None
    """A regular expression of what a call begins with: the text is free up to there, and the grammar is of what
    follows, the expression's group ``held`` included. None: all but the thought is held to the grammar.
    """
    several: bool = False
    """Whether text is free again behind what the grammar describes."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Marks that are control tokens -> their ids; no other control token is part of the text."""
