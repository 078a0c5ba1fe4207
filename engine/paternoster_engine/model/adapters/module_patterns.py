"""Expressions for the names of modules, as PEFT's files have them.

``re`` searches back, for some patterns without end. These are followed by the set of places that each part may end at,
so a pattern costs at most its length times that of the name, squared.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shorten_value

LONGEST_PATTERN = 2000
"""Characters."""
Places = frozenset[int]


@lru_cache(256)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether all of a name matches; raises :class:`UnsupportedModelError` for what is not followed."""
    try:
        if len(pattern) > LONGEST_PATTERN:
            raise ValueError(f"it has more than {LONGEST_PATTERN} characters")
        tree = _parser.parse(pattern)
        if tree.state.flags & ~re.UNICODE:
            raise ValueError("it has flags")
        # What cannot be followed is refused now, and not at the first name that gets so far.
        _check_parts(tree)
    except (ValueError, OverflowError, RecursionError, re.error) as error:
        raise UnsupportedModelError(
            f"pattern {shorten_value(pattern)}: must be an expression of literals, sets, groups, choices and repeats: "
            f"{error}"
        ) from error
    return lambda name: len(name) in _follow(tree, name, frozenset([0]))


def _check_parts(parts: Any) -> None:
    for operation, argument in parts:
        if operation is _constants.SUBPATTERN:
            _, added, removed, inner = argument
            if added or removed:
                raise ValueError("it has flags")
            _check_parts(inner)
        elif operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            _check_parts(argument[2])
        elif operation is _constants.BRANCH:
            for branch in argument[1]:
                _check_parts(branch)
        elif operation is _constants.AT:
            if argument not in (_constants.AT_BEGINNING, _constants.AT_END):
                raise ValueError("it has an anchor that is neither ^ nor $")
        elif operation not in (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            raise ValueError(f"it has {str(operation).lower()}")


def _follow(parts: Any, name: str, places: Places) -> Places:
    """Where ``parts``, one after another, may end that begin at one of ``places``."""
    for operation, argument in parts:
        if not places:
            break
        places = _follow_part(operation, argument, name, places)
    return places


def _follow_part(operation: Any, argument: Any, name: str, places: Places) -> Places:
    if operation is _constants.SUBPATTERN:
        return _follow(argument[3], name, places)
    if operation is _constants.BRANCH:
        return frozenset().union(*(_follow(branch, name, places) for branch in argument[1]))
    if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
        least, most, inner = argument
        return _follow_repeats(least, int(most), inner, name, places)
    if operation is _constants.AT:
        return places & {0 if argument is _constants.AT_BEGINNING else len(name)}
    fits = _fitting(operation, argument)
    return frozenset(place + 1 for place in places if place < len(name) and fits(name[place]))


def _follow_repeats(least: int, most: int, inner: Any, name: str, places: Places) -> Places:
    # A repeat that goes on for longer than the name adds nothing.
    for _ in range(min(least, len(name) + 1)):
        before, places = places, _follow(inner, name, places)
        if places == before:
            break
    reached = fresh = places
    for _ in range(min(most - least, len(name) + 1)):
        fresh = _follow(inner, name, fresh) - reached
        if not fresh:
            break
        reached |= fresh
    return reached


@lru_cache(1024)
def _one_of(items: tuple[Any, ...]) -> Callable[[str], bool]:
    """A set, compiled by ``re`` from what it was parsed as: single characters cannot search back."""
    text = "".join(map(_spell_item, items))
    compiled = re.compile(f"[{text}]")
    return lambda character: compiled.fullmatch(character) is not None


def _spell_item(item: tuple[Any, Any]) -> str:
    operation, argument = item
    if operation is _constants.NEGATE:
        return "^"
    if operation is _constants.LITERAL:
        return re.escape(chr(argument))
    if operation is _constants.RANGE:
        return "-".join(re.escape(chr(end)) for end in argument)
    names = {"digit": r"\d", "not_digit": r"\D", "word": r"\w", "not_word": r"\W", "space": r"\s", "not_space": r"\S"}
    return names[str(argument).lower().removeprefix("category_")]


def _fitting(operation: Any, argument: Any) -> Callable[[str], bool]:
    if operation is _constants.LITERAL:
        return lambda character: ord(character) == argument
    if operation is _constants.NOT_LITERAL:
        return lambda character: ord(character) != argument
    if operation is _constants.ANY:
        return lambda character: character != "\n"
    return _one_of(tuple(argument))


def find_pattern(patterns: Sequence[str], name: str) -> str | None:
    """The first of ``patterns`` that fits ``name``, or its end after a dot, as PEFT has it; None for none."""
    return next((pattern for pattern in patterns if _fits_end(pattern, name)), None)


def is_plain(pattern: str) -> bool:
    """Whether ``pattern`` has no signs but dots, which stand for any one character."""
    return re.fullmatch(r"[\w.-]+", pattern) is not None


def _fits_end(pattern: str, name: str) -> bool:
    if not is_plain(pattern):
        return compile_pattern(rf"(.*\.)?({pattern})$")(name)
    end = name[-len(pattern) :]
    if len(pattern) > len(name) or (len(pattern) < len(name) and name[-len(pattern) - 1] != "."):
        return False
    return end == pattern or all(sign in (".", other) for sign, other in zip(pattern, end, strict=True))
