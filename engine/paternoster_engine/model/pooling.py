"""How the hidden states of a text become the one vector that is wanted of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PoolingMode = Literal["mean", "cls", "last"]


@dataclass(frozen=True, slots=True)
class Pooling:
    """What a model that embeds says of its vectors."""

    mode: PoolingMode
    """Part of a text's hidden states that is its vector: their mean, the first, or the last."""
    size: int
    """Numbers of a vector."""
    normalized: bool = True
    """Vectors are of length 1."""
    scores: bool = False
    """The vector is one number: how well two texts that are read together go together (a cross-encoder)."""
    shortens: bool = False
    """The first numbers of a vector are one, too (Matryoshka, arXiv 2205.13147)."""
    sizes: tuple[int, ...] = ()
    """How many of them may be asked for, where the model says so; empty for any."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What is put before a text, by what the text is for."""
    prompt: str = ""
    """What is put before a text without a prompt of its own."""
    max_length: int | None = None
    """Tokens of the longest text it was made for; None for the model's context."""
    lower_case: bool = False
    """Texts are made lower case, their prompts included, before they become tokens."""
