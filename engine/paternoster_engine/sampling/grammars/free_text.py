"""The parts of an answer that a grammar does not constrain: thoughts, and text before a tool call."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Thought:
    """Text between two delimiters at the beginning of an answer."""

    begin: str
    end: str
    begun: bool
    """Whether the prompt ends with the first delimiter."""


@dataclass(frozen=True, slots=True)
class FreeText:
    """Where the grammar does not apply: it describes the answer without these parts and their end delimiters."""

    thought: Thought | None = None
    call: str | None = None
    """A regular expression of what a call begins with: the text is free up to there, and the grammar is of what
    follows, the expression's group ``held`` included. None: the grammar constrains all but the thought.
    """
    several: bool = False
    """Whether text is free again after what the grammar describes."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Delimiters that are control tokens -> their ids; no other control token is part of the text."""
