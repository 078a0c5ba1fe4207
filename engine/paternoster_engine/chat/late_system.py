"""Late system messages: those after a message of another role, as Claude Code and Codex send them.

Moving such a text to the head of the prompt would change all that follows, and the prefix cache would have none of it.
So the message keeps its place if the chat template renders it there. For other templates its text becomes part of the
neighbouring message of the user.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.reshape import INSTRUCTING

_LATE = "note-in-between"
"""A text that no template contains."""
_BEGIN = [{"role": "system", "content": "first-instruction"}, {"role": "user", "content": "first-question"}]
_REST = [{"role": "assistant", "content": "first-answer"}, {"role": "user", "content": "second-question"}]
_NOTE = {"role": "system", "content": _LATE}

Render = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""Renders messages, with or without the beginning of an answer; may raise :class:`ChatTemplateError`."""


def has_late_system(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a system message comes after a message of another role."""
    roles = [message["role"] in INSTRUCTING for message in messages]
    return any(later and not former for former, later in pairwise(roles))


def carries_late_system(render: Render) -> bool:
    """Whether a template renders a late system message once, in its place, and the rest of the prompt unchanged."""
    return all(
        _carries_late_system(render, before, after)
        for before, after in ((_BEGIN, []), (_BEGIN, _REST), (_BEGIN + _REST, []))
    )


def _carries_late_system(render: Render, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    try:
        plain, noted = render([*before, *after], True), render([*before, _NOTE, *after], True)
        answer = plain.removeprefix(render([*before, *after], False))
    except ChatTemplateError:
        return False
    head = _common_prefix_length(plain, noted)
    tail = _common_prefix_length(plain[head:][::-1], noted[head:][::-1])
    alone = head + tail == len(plain) and noted[head : len(noted) - tail].count(_LATE) == 1
    former, _, later = noted.partition(_LATE)
    return alone and before[-1]["content"] in former and later.endswith(answer)


def _common_prefix_length(one: str, other: str) -> int:
    """Length of the common prefix."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def fold_late_system(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Move the texts of late system messages into the message of the user before, or else the next one.

    A tool's result counts as a message of the user: another message between it and the next answer would end the turn.
    """
    folded: list[dict[str, Any]] = []
    waiting: list[str] = []
    for message in messages:
        role, last = message["role"], folded[-1]["role"] if folded else None
        if role in INSTRUCTING and last not in (None, *INSTRUCTING):
            if last == "assistant":
                waiting.append(message["content"])
            else:
                folded[-1] = _with_texts(folded[-1], [folded[-1]["content"], message["content"]])
            continue
        if waiting and role != "user":
            folded.append({"role": "user", "content": "\n\n".join(waiting)})
        elif waiting:
            message = _with_texts(message, [*waiting, message["content"]])
        waiting = []
        folded.append(dict(message))
    return [*folded, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else folded


def _with_texts(message: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    return {**message, "content": "\n\n".join(text for text in texts if text)}
