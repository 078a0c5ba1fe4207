"""SentencePiece's BPE with scores and byte fallback, from a GGUF file (``tokenizer.ggml.model`` is ``llama``).

SentencePiece joins the two neighbours whose piece has the highest score, until no two make a piece. The library has
merges with ranks instead: one for each way to put a piece together from two, ranked by the score of the piece.
Source: https://github.com/google/sentencepiece, ``src/bpe_model.cc``, and llama.cpp's ``src/llama-vocab.cpp``.
"""

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.vocabulary.spelling import SPACE

NORMAL = 1
"""GGUF's token type of pieces that are merged."""
LONGEST_PIECE = 512
"""Characters."""
MOST_CHARACTERS = 2**22
"""Limit for all pieces together, each a place where one may be parted: Gemma 3's 262 000 have 1.8 million."""


def build_sentencepiece(
    fields: Fields, tokens: Sequence[str], types: Sequence[float], *, space_prefix: bool
) -> tokenizers.Tokenizer:
    """The library's tokenizer, without added tokens.

    ``space_prefix``: text gets a space in front, also behind each token that is looked for in it, as in llama.cpp.
    Raises :class:`UnsupportedModelError` and what the library does.
    """
    scores = fields.read_numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise fields.describe_refusal("the length of tokenizer.ggml.scores", len(scores), f"{len(tokens)}, one a token")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    # With all of them nothing is unknown.
    if absent := next((name for byte in range(256) if (name := f"<0x{byte:02X}>") not in vocabulary), None):
        raise UnsupportedModelError(f"tokenizer.ggml.tokens has no token {absent}: all 256 bytes must be there")
    # Control tokens come from no text: they are found before, or spelled by a user and meant as text.
    pieces = {token: score for token, kind, score in zip(tokens, types, scores, strict=True) if kind == NORMAL}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges_of(pieces), byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if space_prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space_prefix else steps)
    return backend


def merges_of(pieces: dict[str, float]) -> list[tuple[str, str]]:
    """Every two pieces that make a third, best first: by its score, then the longer first part.

    Raises :class:`UnsupportedModelError` for pieces that would take too long.
    """
    longest, total = max(map(len, pieces), default=0), sum(map(len, pieces))
    if longest > LONGEST_PIECE or total > MOST_CHARACTERS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.tokens has pieces of up to {longest} characters, {total} in all: must be at most "
            f"{LONGEST_PIECE}, and {MOST_CHARACTERS} in all"
        )
    # The same text object for each mention of a piece: of a piece's parts there are millions.
    by_text = {piece: piece for piece in pieces}
    merges = []
    for piece, score in pieces.items():
        for i in range(1, len(piece)):
            left = by_text.get(piece[:i])
            right = None if left is None else by_text.get(piece[i:])
            if left is not None and right is not None:
                merges.append((-score, -i, left, right))
    merges.sort(key=lambda merge: (merge[0], merge[1], -len(merge[3])))
    return [(left, right) for _, _, left, right in merges]
