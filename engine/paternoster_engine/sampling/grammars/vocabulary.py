"""A tokenizer as grammars see it: the bytes of each token, which are no text, and how a text is spelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llguidance import LLTokenizer, TokenizerWrapper

if TYPE_CHECKING:
    # Not for the process that tries grammars: it has no other use for the library.
    from paternoster_engine.model.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Plain data, which another process can be given."""

    tokens: list[bytes]
    special: list[int]
    """Ids of control tokens: no text of a grammar is made of them."""
    ends: list[int]
    """Ids that end an answer; at least one."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> Vocabulary:
        tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.largest_id + 1)]
        special = [i for i in range(len(tokens)) if tokenizer.is_special(i)]
        # A control token is known by its name, which some vocabularies do not spell as text.
        for i in special:
            tokens[i] = tokens[i] or (tokenizer.id_to_token(i) or "").encode()
        return cls(tokens, special, list(tokenizer.eos_token_ids))

    def build_tokenizer(self, encode: Encode | None = None) -> LLTokenizer:
        """About 0.15 s and 16 MiB for 49,152 tokens.

        ``encode``: how the model was taught to spell, which a text that a grammar forces should be spelled like.
        """
        return LLTokenizer(TokenizerWrapper(_Speller(self, encode)), eos_token=self.ends)


class _Speller:
    """What :class:`TokenizerWrapper` reads: the tokens and how a text is spelled."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, encode: Encode | None) -> None:
        self.eos_token_id = vocabulary.ends[0]
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.special
        self._encode = encode
        special = frozenset(vocabulary.special)
        self._special = special
        self._ids = {token: i for i, token in enumerate(self.tokens) if token and i not in special}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        if self._encode is not None:
            ids = self._encode(text.decode())
            # Some tokenizers put a space before every text, and some find control tokens in it.
            if b"".join(self.tokens[i] for i in ids) == text and self._special.isdisjoint(ids):
                return ids
        return self._by_longest(text)

    def _by_longest(self, text: bytes) -> list[int]:
        ids, start = [], 0
        while start < len(text):
            for stop in range(min(len(text), start + self._longest), start, -1):
                token = self._ids.get(text[start:stop])
                if token is not None:
                    ids.append(token)
                    break
            else:
                # No token stands for this byte: a text with it is never allowed.
                stop = start + 1
            start = stop
        return ids
