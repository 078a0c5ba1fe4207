"""Text of a growing token sequence, piece by piece."""

import codecs

from paternoster_engine.model.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turns tokens into text as they come; constant work for each token.

    A character whose bytes are spread over tokens is held back until it is whole: at most three bytes,
    because the fourth completes it or proves it wrong. The pieces joined equal ``Tokenizer.decode`` of the whole.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that ``token_id`` completes; empty while a character is incomplete."""
        if self._skip_special_tokens and self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """What is still held back, as U+FFFD; call once at the end."""
        return self._decoder.decode(b"", final=True)
