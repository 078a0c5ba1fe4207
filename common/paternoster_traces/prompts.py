"""Prompts of an exact token length, cut from a text at seeded offsets."""

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from paternoster_traces.trace import PREFIX_BLOCK_TOKENS


def default_text() -> str:
    """Sonnets by William Shakespeare (public domain), shipped with the package."""
    return files("paternoster_traces").joinpath("sonnets.txt").read_text(encoding="utf-8")


def read_text(path: str | Path | None) -> str:
    """The text prompts are cut from; raises :class:`ValueError` when the file cannot serve."""
    if path is None:
        return default_text()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"prompt text {path}: cannot be read: {error}") from None
    if not text.strip():
        raise ValueError(f"prompt text {path}: is empty")
    return text


class PromptSource:
    """Cuts prompts out of one tokenised text, which is read as a ring so that no length is too long for it."""

    def __init__(self, tokens: Sequence[int], *, seed: int = 0) -> None:
        if not tokens:
            raise ValueError("prompt text: has no tokens")
        self._tokens = list(tokens)
        self._seed = seed

    def make_prompt(self, index: int, length: int, prefix_blocks: Sequence[int] = ()) -> list[int]:
        """``length`` tokens for request ``index``.

        Requests whose leading ``prefix_blocks`` are equal get equal leading tokens, one block of
        :data:`~paternoster_traces.trace.PREFIX_BLOCK_TOKENS` each; the rest is the request's own.
        """
        prompt: list[int] = []
        for block in prefix_blocks[: length // PREFIX_BLOCK_TOKENS]:
            prompt += self._cut_text(f"block {block}", PREFIX_BLOCK_TOKENS)
        return prompt + self._cut_text(f"request {index}", length - len(prompt))

    def _cut_text(self, name: str, length: int) -> list[int]:
        digest = hashlib.blake2b(f"{self._seed} {name}".encode(), digest_size=8).digest()
        start = int.from_bytes(digest, "big") % len(self._tokens)
        laps = (start + length) // len(self._tokens) + 1
        return (self._tokens * laps)[start : start + length]
