"""Find the form of a conversation in which a chat template shows all of it, by rendering its skeleton."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.reshape import Conversation, Step, possible_steps, reshape_messages
from paternoster_engine.chat.skeleton import markers_in

Render = Callable[[Conversation], str]
"""Renders a conversation; raises :class:`ChatTemplateError`."""
_SPELLED_PART = re.compile(r"""["']type["']: ?["']text["']""")
"""A list of parts that a template printed as it is instead of iterating over it."""
_FIRST_OF_TWO = ("as_system", "one_call", "merge_instructions", "fold_instructions")
_SECOND_OF_TWO = ("merge_instructions", "fold_instructions", "join_neighbours", "without_content")


class TemplateFit(NamedTuple):
    """The form of a conversation that a template shows best."""

    steps: tuple[Step, ...] = ()
    """Steps that bring the conversation into this form; see :mod:`paternoster_engine.chat.reshape`."""
    shown: frozenset[str] = frozenset()
    """Markers that the prompt then contains."""
    error: str | None = None
    """The template's error where it refuses the conversation, and every other form loses a text."""


class _Trial(NamedTuple):
    messages: Conversation
    steps: tuple[Step, ...]
    shown: frozenset[str]
    error: str | None

    def count_lost(self, required: frozenset[str]) -> int:
        return len(required - self.shown) if self.error is None else len(required) + 1


def fit_skeleton(messages: Conversation, required: Iterable[str], render: Render) -> TemplateFit:
    """Return the first form of the skeleton ``messages`` that shows all ``required`` markers, or the best one.

    Renders once where the usual form shows all of them, and else about twenty times at most.
    """
    needed = frozenset(required)
    first = _try_steps(messages, (), render)
    best = first if first.error is None else _without_refusal(first, needed, render)
    while best.error is None and (missing := needed - best.shown):
        trials = (
            _try_steps(best.messages, best.steps, render, step)
            for step in possible_steps(best.messages, lambda message: bool(_markers_of(message) & missing))
            if step[1] and step not in best.steps
        )
        better = next((trial for trial in trials if trial.count_lost(needed) < best.count_lost(needed)), None)
        if better is None:
            break
        best = better
    if first.error is not None and best.count_lost(needed):
        # The template's own error explains more than the text that some other form would lose.
        return TemplateFit(error=first.error)
    return TemplateFit(best.steps, best.shown)


def _without_refusal(refused: _Trial, needed: frozenset[str], render: Render) -> _Trial:
    """Try each step for all messages, and some pairs: a refusal does not show which text the template would lose."""
    singles = []
    best = refused
    for step in possible_steps(refused.messages, lambda _: True):
        if step[1]:
            singles.append(_try_steps(refused.messages, (), render, step))
            best = min(best, singles[-1], key=lambda trial: trial.count_lost(needed))
            if not best.count_lost(needed):
                return best
    for single in singles:
        if single.steps[0][0] not in _FIRST_OF_TWO:
            continue
        for step in possible_steps(single.messages, lambda _: True):
            if step[1] and step[0] in _SECOND_OF_TWO:
                best = min(
                    best, _try_steps(single.messages, single.steps, render, step), key=lambda t: t.count_lost(needed)
                )
                if not best.count_lost(needed):
                    return best
    return best


def _try_steps(messages: Conversation, steps: tuple[Step, ...], render: Render, step: Step | None = None) -> _Trial:
    if step is not None:
        messages, steps = reshape_messages(messages, [step]), (*steps, step)
    try:
        text = render(messages)
    except ChatTemplateError as error:
        return _Trial(messages, steps, frozenset(), str(error))
    if _SPELLED_PART.search(text) and any(isinstance(message["content"], list) for message in messages):
        return _Trial(messages, steps, frozenset(), "lists of parts are written as they are")
    return _Trial(messages, steps, markers_in(text), None)


def _markers_of(message: Mapping[str, Any]) -> frozenset[str]:
    """The markers of its content and its calls."""
    return markers_in(f"{message['content']}{message.get('tool_calls') or ''}")
