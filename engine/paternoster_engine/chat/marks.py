"""Control tokens that users write stay text: marks in messages tell them from those that the template writes.

A mark goes into each one that is spelled in a message, behind its first character, before the template renders: so it
is no control token there, wherever the template puts it. The tokenizer takes marks out *after* it has looked for
control tokens and *before* it merges bytes: what is left is encoded as the plain text it is, together with its
neighbours. Texts in which nobody spells a control token have no marks and are encoded as ever.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PRIVATE = 0xF0000


def _new_mark() -> str:
    return "".join(chr(_PRIVATE + secrets.randbelow(0xFFFD)) for _ in range(4))


MARK = _new_mark()
"""Four characters of a private plane, others in each process: no text has them by accident or can guess them."""
END = _new_mark()
"""Stands behind the last message's text while a template renders, where the prompt ends with that text."""


class Marker:
    """Marks what is spelled like a control token of one model."""

    def __init__(self, special: Iterable[str], others: Iterable[str], template: str) -> None:
        """``special``: control tokens for sure. ``others``: what else is one token whenever it is spelled.

        Those the ``template`` writes are control tokens too, such as ``<tool_call>``; the rest are words and spaces.
        But for answers of the assistant: there they are what the model itself has said, and come back as that.
        """
        self._special = _markable_tokens(special)
        written = [token for token in others if token in template and not token.isspace()]
        self._all = [*self._special, *_markable_tokens(written)]

    def mark(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages, with marks in their texts."""
        return [
            {
                name: value
                if name == "role"
                else _mark_value(value, self._special if message["role"] == "assistant" else self._all)
                for name, value in message.items()
            }
            for message in messages
        ]

    def mark_value(self, value: Any) -> Any:
        """JSON that a user sent, with marks in its texts and names, such as tools and documents."""
        return _mark_value(value, self._all)


def _markable_tokens(tokens: Iterable[str]) -> list[str]:
    """Those between whose characters a mark can stand."""
    return [token for token in tokens if len(token) > 1]


def _mark_value(value: Any, tokens: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _mark_tokens(value, tokens)
    if isinstance(value, dict):
        return {_mark_tokens(name, tokens): _mark_value(item, tokens) for name, item in value.items()}
    return [_mark_value(item, tokens) for item in value] if isinstance(value, list) else value


def _mark_tokens(text: str, tokens: Iterable[str]) -> str:
    for token in tokens:
        # More than once where a token overlaps with itself.
        while token in text:
            text = text.replace(token, token[0] + MARK + token[1:])
    return text
