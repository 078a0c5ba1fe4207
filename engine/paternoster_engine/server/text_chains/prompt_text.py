"""The text of the call in progress: its chain, and how many tokens of its prompt each piece takes."""

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from paternoster_contract.text_chains.canonical_text import (
    CanonicalText,
    answer_parts,
    cache_salt_of,
    canonical_text,
    encode_parts,
)
from paternoster_contract.text_chains.chain import ChainHash, Piece, chain_scope
from paternoster_contract.text_chains.positions import count_tokens, find_byte_ends, locate_prompt
from paternoster_engine.core.text_piece import TextPiece
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning


class PromptText:
    """One prompt's text. Its answer continues it, as the next turn of the conversation will send it."""

    def __init__(self, scope: bytes, text: CanonicalText) -> None:
        data = text.encode()
        self._text = text
        self._chain = ChainHash(scope, text)
        self._ends = self._chain.extend(data)
        self._length = len(data)
        self.pieces: tuple[TextPiece, ...] = ()
        """Once the prompt's tokens are known."""

    def locate_pieces(self, rendered: str, tokens: Sequence[int], tokenizer: Tokenizer) -> None:
        """Find the pieces in the prompt, ``rendered`` by a template or the client's own text."""
        if self._text.token_ids is None and self._ends:
            self._set_counts(rendered, tokenizer.byte_lengths(tokens))

    def locate_ids(self) -> None:
        """The prompt came as token ids of four bytes each."""
        if self._text.token_ids is not None:
            self._set_counts("", ())

    def _set_counts(self, rendered: str, lengths: Sequence[int]) -> None:
        counts = locate_prompt(self._text, [piece.end for piece in self._ends], rendered, lengths)
        self.pieces = _tie_pieces(counts, self._ends)

    def locate_answer(
        self, events: Iterable[Event], num_prompt: int, tokens: Sequence[int], tokenizer: Tokenizer
    ) -> tuple[TextPiece, ...]:
        """The pieces that the answer to the prompt completes, once it is whole; ``tokens``: those of the answer.

        None where the model thought before it answered: most templates leave that out of the next turn's prompt, and
        so its tokens differ from there on.
        """
        content, calls = "", []
        for event in events:
            match event:
                case Content():
                    content += event.text
                case Reasoning():
                    return ()
                case CallBegin():
                    calls.append((event.name, ""))
                case Arguments() if calls:
                    calls[-1] = calls[-1][0], calls[-1][1] + event.text
        if self._text.token_ids is not None:
            return ()
        parts = answer_parts(self._text, content, calls=calls)
        pieces = self._chain.extend(encode_parts(parts))
        lengths = tokenizer.byte_lengths(tokens)
        data = b"".join(map(tokenizer.token_bytes, tokens))
        ends = find_byte_ends(parts, [piece.end - self._length for piece in pieces], data)
        counts = accumulate(count_tokens(ends, len(data), lengths), max)
        return _tie_pieces([num_prompt + count for count in counts], pieces)


def _tie_pieces(counts: Iterable[int], pieces: Iterable[Piece]) -> tuple[TextPiece, ...]:
    return tuple(TextPiece(count, piece.digest) for count, piece in zip(counts, pieces, strict=True))


@dataclass(slots=True)
class CallText:
    """The body of a call as its client sent it, and the text of its first prompt."""

    path: str
    body: Any = None
    prompt: PromptText | None = field(default=None)


_call_text: ContextVar[CallText | None] = ContextVar("_call_text", default=None)
"""Text of the call in progress; tasks that work on it share the object."""


def begin_call_text(path: str) -> CallText:
    text = CallText(path)
    _call_text.set(text)
    return text


def begin_prompt_text(model: str, sender: Caller) -> PromptText | None:
    """The text of the call in progress, to be located in its prompt; None where no call of a client is in progress."""
    call = _call_text.get()
    text = None if call is None else canonical_text(call.path, call.body)
    if call is None or text is None:
        return None
    isolated = sender.identity is not None and sender.rules.isolates_cache
    scope = chain_scope(model, sender.tenant if isolated else "", cache_salt_of(call.body))
    call.body, call.prompt = None, PromptText(scope, text)
    return call.prompt


def current_prompt_text() -> PromptText | None:
    call = _call_text.get()
    return None if call is None else call.prompt
