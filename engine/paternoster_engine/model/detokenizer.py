"""Text of a growing token sequence, piece by piece."""

import codecs
from collections.abc import Collection

from paternoster_engine.model.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turns tokens into text as they come; constant work for each token.

    A character whose bytes are spread over tokens is held back until it is whole: at most three bytes,
    because the fourth completes it or proves it wrong. The pieces joined equal ``Tokenizer.decode`` of the whole where
    they begin a text; where they continue one, what ``Tokenizer.decode`` of both has more than of the first.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        *,
        continues: bool = False,
        shown: Collection[int] = (),
    ) -> None:
        """``continues``: whether text comes before, so that a first space is a space.

        ``shown``: special tokens that are not skipped.
        """
        self._shown = shown
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strips_space = tokenizer.strips_space and not continues

    def add_token(self, token_id: int) -> str:
        """Text that ``token_id`` completes; empty while a character is incomplete."""
        if self._skip_special_tokens and self._tokenizer.is_special(token_id) and token_id not in self._shown:
            return ""
        text = self._decoder.decode(self._tokenizer.token_bytes(token_id))
        if text and self._strips_space:
            self._strips_space = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """What is still held back, as U+FFFD; call once at the end."""
        return self._decoder.decode(b"", final=True)
