"""Marks in messages that separate control tokens which users write from those that the template writes.

Before the template renders, each control token that a message spells gets a mark behind its first character, so that it
is plain text wherever the template puts it. The tokenizer removes marks *after* it has looked for control tokens and
*before* it merges bytes: the rest is encoded as plain text, together with its neighbours. Texts that spell no control
token have no marks and are encoded as they are.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PRIVATE = 0xF0000


def _new_mark() -> str:
    return "".join(chr(_PRIVATE + secrets.randbelow(0xFFFD)) for _ in range(4))


CONTROL_MARK = _new_mark()
"""Four random characters of a private plane, drawn by each process: no text contains or guesses them."""
END = _new_mark()
"""Follows the last message's text while a template renders, if the prompt ends with that text."""


class Marker:
    """Marks texts that are spelled like a control token of one model."""

    def __init__(self, special: Iterable[str], others: Iterable[str], template: str) -> None:
        """``special``: control tokens. ``others``: further texts that are always one token.

        Of ``others``, those that the ``template`` writes are control tokens too, such as ``<tool_call>``; the rest are
        words and spaces. In answers of the assistant only ``special`` are marked: the model itself wrote the others.
        """
        self._special = _markable_tokens(special)
        written = [token for token in others if token in template and not token.isspace()]
        self._all = [*self._special, *_markable_tokens(written)]

    def mark_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Copy the messages, with marks in their texts."""
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
        """Copy JSON that a user sent, such as tools and documents, with marks in its texts and names."""
        return _mark_value(value, self._all)


def _markable_tokens(tokens: Iterable[str]) -> list[str]:
    """The tokens that have room for a mark between two characters."""
    return [token for token in tokens if len(token) > 1]


def _mark_value(value: Any, tokens: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _mark_tokens(value, tokens)
    if isinstance(value, dict):
        return {_mark_tokens(name, tokens): _mark_value(item, tokens) for name, item in value.items()}
    return [_mark_value(item, tokens) for item in value] if isinstance(value, list) else value


def _mark_tokens(text: str, tokens: Iterable[str]) -> str:
    for token in tokens:
        # A token that overlaps with itself is replaced more than once.
        while token in text:
            text = text.replace(token, token[0] + CONTROL_MARK + token[1:])
    return text
