"""Which bytes a token stands for. The text of tokens is their bytes, joined and read as UTF-8."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shorten_value

SPACE = "\u2581"
"""How SentencePiece writes a space."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Protocol):
    """How one kind of vocabulary writes bytes."""

    strips_space: bool
    """Whether a text's first space is the one that encoding put there."""

    def decode_token(self, token: str) -> bytes:
        """The bytes of a token that merges make."""
        ...

    def decode_added_token(self, token: str) -> bytes:
        """The bytes of a token that is looked for in the text."""
        ...

    def most_bytes(self, token: str) -> int:
        """At least as many as ``plain`` has, found without making them: a vocabulary has 260 000."""
        ...


class ByteLevel:
    """GPT-2's: each character stands for one byte."""

    strips_space = False

    def decode_token(self, token: str) -> bytes:
        # A character that stands for no byte is in no vocabulary that was trained; it stands for itself.
        return b"".join(bytes((BYTE_OF[c],)) if c in BYTE_OF else c.encode(errors="replace") for c in token)

    def decode_added_token(self, token: str) -> bytes:
        return token.encode(errors="replace")

    def most_bytes(self, token: str) -> int:
        return len(token)


class Pieces:
    """SentencePiece's: text, with spaces as U+2581; bytes of what no piece has are tokens such as ``<0x0A>``."""

    def __init__(self, *, strips_space: bool) -> None:
        self.strips_space = strips_space

    def decode_token(self, token: str) -> bytes:
        byte = _BYTE.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else self.decode_added_token(token)

    def decode_added_token(self, token: str) -> bytes:
        return token.replace(SPACE, " ").encode(errors="replace")

    def most_bytes(self, token: str) -> int:
        return len(self.decode_added_token(token))


class WordPieces:
    """BERT's: text in words; what goes on within a word begins with ``##``."""

    strips_space = True

    def decode_token(self, token: str) -> bytes:
        return (token[2:] if token.startswith("##") else f" {token}").encode(errors="replace")

    def decode_added_token(self, token: str) -> bytes:
        return f" {token}".encode(errors="replace")

    def most_bytes(self, token: str) -> int:
        return len(self.decode_added_token(token))


def spelling_of(decoder: Mapping[str, Any]) -> Spelling:
    """What a tokenizer.json's ``decoder`` says; raises :class:`UnsupportedModelError`."""
    steps = decoder.get("decoders") if decoder.get("type") == "Sequence" else [decoder]
    steps = steps if isinstance(steps, list) else [steps]
    if [step.get("type") if isinstance(step, Mapping) else None for step in steps] == ["ByteLevel"]:
        return ByteLevel()
    if len(steps) == 1 and isinstance(steps[0], Mapping):
        if steps[0].get("type") == "WordPiece" and steps[0].get("prefix") == "##":
            return WordPieces()
        if steps[0].get("type") == "Metaspace" and steps[0].get("replacement") == SPACE:
            return Pieces(strips_space=True)
    if steps in (_PIECES, [*_PIECES, _STRIP]):
        return Pieces(strips_space=_STRIP in steps)
    kinds = [step.get("type") if isinstance(step, Mapping) else step for step in steps]
    raise UnsupportedModelError(
        f"tokenizer.json has the decoder {shorten_value(kinds)}: built in are 'ByteLevel', 'WordPiece' (with '##'), "
        "'Metaspace' (of U+2581), and a 'Sequence' of 'Replace' (of U+2581 with a space), 'ByteFallback', 'Fuse' and, "
        "where text begins with a space of its own, 'Strip'"
    )


_PIECES = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()
